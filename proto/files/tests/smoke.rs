#[test]
fn t() {
    for f in std::env::var("F").unwrap_or_default().split(',') {
        if f.is_empty() {
            continue;
        }
        let p = sluicegate_files::buckets::parse_bytes(f, &std::fs::read(f).unwrap());
        for d in p.errors.iter().chain(&p.warnings) {
            println!("{d}\n");
        }
        println!("{:#?} {:?}", p.service, p.name);
    }
}
