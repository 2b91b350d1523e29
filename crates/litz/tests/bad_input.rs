use litz::*;
#[test]
fn explore() {
    for dir in ["2.15", "2.11"] {
    let mut paths: Vec<_> = std::fs::read_dir(format!("../litz-import/tests/golden/{dir}")).unwrap().map(|e| e.unwrap().path()).collect();
    paths.push("../../examples/digits.pt2".into());
    for p in paths {
        match Model::open(&p) {
            Err(e) => println!("{p:?}: OPEN {e}"),
            Ok(m) => {
                println!("{p:?}: {:?}", m.imported.inputs.iter().map(|i| format!("{} {:?}", i.name, i.kind)).collect::<Vec<_>>());
                for (n, t) in m.inputs() { println!("   {n}: {t}"); }
                println!("   {:?}", m.imported.graph.facts.guards().iter().map(|g| g.rel.to_string()).collect::<Vec<_>>());
                if let Err(e) = m.compile(&Options { reference: true, threads: 1, ..Options::default() }) { println!("   COMPILE {e}"); }
            }
        }
    }}
}
