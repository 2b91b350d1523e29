//! Temporary.
use std::time::Instant;
fn main() {
    let path = std::env::args().nth(1).unwrap();
    let t = Instant::now();
    let model = litz::Model::open(&path).unwrap();
    println!("open {:?}", t.elapsed());
    let mut options = litz::Options::from_env();
    options.cache = std::env::args().nth(2).map(Into::into);
    let t = Instant::now();
    let c = model.compile(&options).unwrap();
    println!("compile {:?}", t.elapsed());
    for s in &c.timings { if s.time.as_micros() > 300 { println!("  {:20} {:?}", s.name, s.time); } }
    let r = c.texts.realized.as_ref().unwrap();
    let t = Instant::now();
    let texts: Vec<String> = r.kernels.iter().map(|k| k.to_string()).collect();
    let p = r.program.to_string();
    println!("print {:?} kernels {} bytes {} program {}", t.elapsed(), texts.len(), texts.iter().map(|t| t.len()).sum::<usize>(), p.len());
    let t = Instant::now();
    for k in &texts { litz_ir::text::kernel::parse(k).unwrap(); }
    println!("parse kernels {:?}", t.elapsed());
    let t = Instant::now();
    litz_ir::text::program::parse(&p).unwrap();
    println!("parse program {:?}", t.elapsed());
    let t = Instant::now();
    litz::CpuBackend::new(&options);
    println!("backend {:?}", t.elapsed());
    println!("{}", c.run::<>(&[]).err().map(|e| e.to_string()).unwrap_or_default());
}
