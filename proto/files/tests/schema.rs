//! The schema in `configs/` is the one that the parser's tables say.

use std::path::Path;

use sluicegate_files::schema;

#[test]
fn the_schema_in_configs_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/bucket-file.schema.json");
    let mut expected = serde_json::to_string_pretty(&schema::bucket_file()).expect("it is JSON");
    expected.push('\n');
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, &expected).expect("configs/ can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "configs/bucket-file.schema.json is out of date; refresh it with\n  \
         UPDATE_SCHEMA=1 cargo test -p sluicegate-files --test schema"
    );
}
