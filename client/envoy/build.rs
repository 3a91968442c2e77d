//! Compiles the subset of Envoy's rate limit service, without protoc.
use std::env;
use std::path::PathBuf;

use prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let set = protox::compile(["envoy/service/ratelimit/v3/rls.proto"], ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptor.bin"), set.encode_to_vec())?;
    tonic_prost_build::configure().bytes(".").include_file("rls.rs").compile_fds(set)?;
    Ok(())
}
