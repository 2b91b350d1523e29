"""Says what a token of a decoder takes at least in one kernel that stays on the GPU: python benches/gpu_step.py

The kernel reads the weights and the cache of 16 layers and of the head of a LLaMA of 1.2 billion weights, and computes nothing. Its blocks, one a unit, meet behind
each part that needs all of the one before: five a layer. Threads load the first part of what is behind a meeting before they wait. That is what a
kernel for a whole token reaches at best; docs/adr has what Litz's kernels, one for each part, take for the same with their arithmetic. Needs PyTorch 2.9 or later.
"""

import statistics

import torch

SOURCE = r"""
extern "C" __global__ void __launch_bounds__(THREADS, 1) step(const uint4* from, const long long* ends, int parts, unsigned* met, unsigned* out, int meets) {
  const long long lane = (long long)blockIdx.x * THREADS + threadIdx.x, all = (long long)gridDim.x * THREADS;
  uint4 near[AHEAD];
  unsigned sum = 0;
  auto load = [&](long long at, long long end) {
    #pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      long long where = at + i * all;
      near[i] = make_uint4(0, 0, 0, 0);
      if (where < end) asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(near[i].x), "=r"(near[i].y), "=r"(near[i].z), "=r"(near[i].w) : "l"(from + where));
    }
  };
  load(lane, ends[0]);
  long long start = 0;
  for (int part = 0; part < parts; ++part) {
    const long long end = ends[part];
    for (long long at = start + lane; at < end; at += AHEAD * all) {
      uint4 held[AHEAD];
      #pragma unroll
      for (int i = 0; i < AHEAD; ++i) held[i] = near[i];
      const long long next = at + AHEAD * all;
      if (next < end) load(next, end);
      #pragma unroll
      for (int i = 0; i < AHEAD; ++i) sum ^= held[i].x ^ held[i].y ^ held[i].z ^ held[i].w;
    }
    if (part + 1 < parts) load(end + lane, ends[part + 1]);
    if (meets && part + 1 < parts) {
      __syncthreads();
      if (threadIdx.x == 0) {
        unsigned seen;
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" :: "l"(met) : "memory");
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(met) : "memory"); while (seen < (part + 1) * gridDim.x);
      }
      __syncthreads();
    }
    start = end;
  }
  if (sum == 0x12345678) *out = sum;
}
"""

# Bytes of the parts of a layer: projections of queries, keys and values; the cache of 4096 positions; the output's; gate and up; down. Then the head's.
LAYER = [2 * 2048 * 3072, 2 * 2 * 8 * 4096 * 64, 2 * 2048 * 2048, 2 * 2048 * 16384, 2 * 8192 * 2048]
PARTS = 16 * LAYER + [2 * 2048 * 128256]


def median(run, count=30) -> float:
    for _ in range(3):
        run()
    times = []
    for _ in range(count):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(1e3 * start.elapsed_time(end))
    return statistics.median(times)


def main() -> None:
    units = torch.cuda.get_device_properties(0).multi_processor_count
    memory = torch.empty(sum(PARTS), dtype=torch.uint8, device="cuda")
    half = memory.view(2, -1)
    # A copy of one half to the other moves as many bytes as all parts have.
    floor = median(lambda: half[0].copy_(half[1]))
    print(f"{torch.cuda.get_device_name()}: {sum(PARTS) / 1e6:.0f} MB at the rate of a copy {floor:.0f} us")
    ends = torch.tensor(PARTS, device="cuda").cumsum(0) // 16
    for threads, ahead in ((1024, 2), (1024, 4), (512, 8), (512, 12)):
        source = SOURCE.replace("THREADS", str(threads)).replace("AHEAD", str(ahead))
        kernel = torch.cuda._compile_kernel(source, "step")
        met, out = torch.zeros(1, dtype=torch.int32, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
        for meets in (0, 1):

            def run():
                met.zero_()
                kernel((units, 1, 1), (threads, 1, 1), (memory, ends, len(PARTS), met, out, meets))

            took = median(run)
            print(f"{threads} threads, {ahead} loads ahead, {'meeting' if meets else 'not meeting'}: {took:.0f} us, {100 * floor / took:.0f} % of a copy's rate")


if __name__ == "__main__":
    main()
