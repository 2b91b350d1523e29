//! Keeps captured launches as a graph of the driver, whose arguments may be exchanged.

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{
    self, CUDA_KERNEL_NODE_PARAMS, CUgraph, CUgraphDependencyType, CUgraphEdgeData, CUgraphExec, CUgraphNode,
    CUstream,
};

use super::driver::{CudaError, Gpu, check};
use super::kernels::InFront;
use super::launch::Prepared;
use crate::device::Recording;

/// The driver from which on nodes may begin before those in front of them have ended: of CUDA 12.3.
const EARLY_DRIVER: i32 = 12030;

/// Launches, one after another. A single one is none of the driver's graphs: it is enqueued as it is, which takes the host less time than to exchange
/// the arguments of a graph and to launch that.
pub(super) struct Graph {
    gpu: Arc<Gpu>,
    graph: CUgraph,
    ready: CUgraphExec,
    launches: Vec<(Prepared, CUgraphNode)>,
}

// SAFETY: handles of the driver may be used from any thread, one at a time.
unsafe impl Send for Graph {}

impl Recording for Graph {}

fn parameters(launch: &mut Prepared, pointers: &mut Vec<*mut std::ffi::c_void>) -> CUDA_KERNEL_NODE_PARAMS {
    *pointers = launch.pointers();
    CUDA_KERNEL_NODE_PARAMS {
        func: launch.function.handle,
        gridDimX: launch.blocks,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: launch.threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: launch.shared_bytes,
        kernelParams: pointers.as_mut_ptr(),
        extra: ptr::null_mut(),
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    }
}

impl Graph {
    pub(super) fn new(gpu: &Arc<Gpu>, launches: Vec<Prepared>) -> Result<Graph, CudaError> {
        let mut graph = Graph {
            gpu: Arc::clone(gpu),
            graph: ptr::null_mut(),
            ready: ptr::null_mut(),
            launches: Vec::with_capacity(launches.len()),
        };
        if launches.iter().filter(|launch| launch.blocks > 0).count() <= 1 {
            graph.launches.extend(launches.into_iter().map(|launch| (launch, ptr::null_mut())));
            return Ok(graph);
        }
        let mut pointers = Vec::new();
        let (mut in_front, mut last) = (InFront::default(), None);
        // SAFETY: all handles live longer than the calls; parameters are copied.
        unsafe {
            check("cuGraphCreate", sys::cuGraphCreate(&raw mut graph.graph, 0))?;
            for mut launch in launches {
                let mut node = ptr::null_mut();
                if launch.blocks > 0 {
                    let parameters = parameters(&mut launch, &mut pointers);
                    let new = &raw mut node;
                    let result =
                        sys::cuGraphAddKernelNode_v2(new, graph.graph, ptr::null(), 0, &raw const parameters);
                    check("cuGraphAddKernelNode", result)?;
                    let is_early = in_front.next(launch.function, launch.blocks);
                    if let Some(before) = last.replace(node) {
                        graph.order(before, node, is_early)?;
                    }
                }
                graph.launches.push((launch, node));
            }
            check(
                "cuGraphInstantiate",
                sys::cuGraphInstantiateWithFlags(&raw mut graph.ready, graph.graph, 0),
            )?;
        }
        Ok(graph)
    }

    /// Lets a node begin when another one has ended, or early, when all blocks of the other one have begun.
    ///
    /// # Safety
    /// Both are nodes of the graph.
    unsafe fn order(&self, before: CUgraphNode, node: CUgraphNode, is_early: bool) -> Result<(), CudaError> {
        let (from, to) = (&raw const before, &raw const node);
        if !is_early || self.gpu.facts.driver < EARLY_DRIVER {
            // SAFETY: by the contract.
            let result = unsafe { sys::cuGraphAddDependencies(self.graph, from, to, 1) };
            return check("cuGraphAddDependencies", result);
        }
        let edge = CUgraphEdgeData {
            from_port: sys::CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC as u8,
            to_port: 0,
            type_: CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u8,
            reserved: [0; 5],
        };
        // SAFETY: by the contract; the driver is one that has the function.
        let result = unsafe { sys::cuGraphAddDependencies_v2(self.graph, from, to, &raw const edge, 1) };
        check("cuGraphAddDependencies", result)
    }

    /// Gives launches other arguments, those of one after the other.
    pub(super) fn update(
        &mut self,
        exchange: &mut dyn FnMut(&mut Prepared, &[*mut u8]) -> Result<bool, CudaError>,
        args: &[*mut u8],
    ) -> Result<(), CudaError> {
        let mut rest = args;
        let mut pointers = Vec::new();
        for (launch, node) in &mut self.launches {
            let own;
            (own, rest) = rest.split_at(launch.args);
            if launch.blocks == 0 || !exchange(launch, own)? || self.ready.is_null() {
                continue;
            }
            let parameters = parameters(launch, &mut pointers);
            // SAFETY: the node is one of the graph; parameters are copied.
            let result =
                unsafe { sys::cuGraphExecKernelNodeSetParams_v2(self.ready, *node, &raw const parameters) };
            check("cuGraphExecKernelNodeSetParams", result)?;
        }
        Ok(())
    }

    /// Whether it is a graph of the driver's.
    pub(super) fn is_graph(&self) -> bool {
        !self.ready.is_null()
    }

    /// Enqueues the launches one by one, where somebody captures them, or they are no graph of the driver's.
    pub(super) fn launch_each(
        &mut self,
        enqueue: &mut dyn FnMut(&mut Prepared, bool) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let launches = self.launches.iter_mut().map(|(launch, _)| launch);
        let mut launches = launches.filter(|launch| launch.blocks > 0);
        let mut in_front = InFront::default();
        launches.try_for_each(|launch| {
            let is_early = in_front.next(launch.function, launch.blocks);
            enqueue(launch, is_early)
        })
    }

    pub(super) fn launch(&self, stream: CUstream) -> Result<(), CudaError> {
        // SAFETY: graph and stream are alive.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.ready, stream) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _entered = self.gpu.enter();
        // SAFETY: created above; a graph that is launched may be destroyed. What is returned nobody can act on.
        unsafe {
            if !self.ready.is_null() {
                let _ = sys::cuGraphExecDestroy(self.ready);
            }
            if !self.graph.is_null() {
                let _ = sys::cuGraphDestroy(self.graph);
            }
        }
    }
}
