//! Compiles the protocol without protoc, and keeps its descriptor for gRPC reflection.

use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let protos = ["sluicegate/v1/tier.proto", "sluicegate/v1/bucket.proto"];
    for proto in protos {
        println!("cargo:rerun-if-changed={proto}");
    }
    let descriptors = protox::compile(protos, ["."])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptor.bin"), prost::Message::encode_to_vec(&descriptors))?;
    // Channels are made in `transport` alone; and a generated `connect` would clash with the call.
    tonic_prost_build::configure().build_transport(false).bytes(".").compile_fds(descriptors)?;
    Ok(())
}
