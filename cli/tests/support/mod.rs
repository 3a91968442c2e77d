//! Real processes for tests: the `sluice` binary as users run it, Envoy, and an upstream that counts.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long a process may take to say that it is ready.
const READY_WITHIN: Duration = Duration::from_secs(20);

#[expect(clippy::disallowed_methods, reason = "tests of real processes run in real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A `sluice` process; killed when dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    /// What it wrote to its ready file.
    pub(crate) ready: Value,
    log: PathBuf,
}

impl Process {
    /// Starts a server and waits until it is ready.
    pub(crate) fn server(dir: &Path, name: &str, args: &[&str]) -> Self {
        let ready_file = dir.join(format!("{name}.ready"));
        let _ = fs::remove_file(&ready_file);
        let log = dir.join(format!("{name}.log"));
        let out = fs::OpenOptions::new().create(true).append(true).open(&log).expect("log file");
        let child = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(args)
            .arg("--ready-file")
            .arg(&ready_file)
            .stdout(out.try_clone().expect("log file"))
            .stderr(out)
            .stdin(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let mut process = Self { child, ready: Value::Null, log };
        let deadline = now() + READY_WITHIN;
        loop {
            if let Ok(text) = fs::read_to_string(&ready_file)
                && let Ok(ready) = serde_json::from_str(&text)
            {
                process.ready = ready;
                return process;
            }
            if let Some(status) = process.child.try_wait().expect("wait") {
                panic!("{name} ended with {status} before it was ready:\n{}", process.log_text());
            }
            assert!(now() < deadline, "{name} is not ready:\n{}", process.log_text());
            sleep(Duration::from_millis(20));
        }
    }

    /// An address of the ready file.
    pub(crate) fn address(&self, what: &str) -> String {
        self.ready[what]
            .as_str()
            .unwrap_or_else(|| panic!("no `{what}` in ready file {}", self.ready))
            .to_owned()
    }

    /// Everything it has logged.
    pub(crate) fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// `kill -9`, and wait.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM, and its exit code.
    pub(crate) fn terminate(&mut self) -> Option<i32> {
        signal(self.child.id(), "TERM");
        let deadline = now() + Duration::from_secs(15);
        while now() < deadline {
            if let Some(status) = self.child.try_wait().expect("wait") {
                return status.code();
            }
            sleep(Duration::from_millis(20));
        }
        panic!("still there 15 s after SIGTERM:\n{}", self.log_text());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- {}:\n{}", self.log.display(), tail(&self.log_text(), 40));
        }
    }
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Sends a signal by name.
pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status()
        .expect("kill runs");
    assert!(status.success(), "kill -{name} {pid}");
}

/// A control plane: one controller and an aggregator in each of two zones, `a` and `b`.
pub(crate) struct Plane {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) controller: Process,
    pub(crate) aggregators: Vec<Process>,
}

pub(crate) const ZONES: [&str; 2] = ["a", "b"];

impl Plane {
    /// Starts everything on free ports with these bucket files (name, text) and further flags for
    /// both kinds of server.
    pub(crate) fn start(files: &[(&str, &str)], flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        let buckets = dir.path().join("buckets");
        fs::create_dir(&buckets).expect("buckets dir");
        for (name, text) in files {
            fs::write(buckets.join(name), text).expect("bucket file");
        }
        let controller = start_controller(dir.path(), "127.0.0.1:0", flags);
        let up = controller.address("listen");
        let aggregators = ZONES
            .iter()
            .map(|zone| start_aggregator(dir.path(), zone, "127.0.0.1:0", &up, flags))
            .collect();
        Self { dir, controller, aggregators }
    }

    pub(crate) fn aggregator_address(&self, zone: usize) -> String {
        self.aggregators[zone].address("listen")
    }

    /// `/status` of the controller.
    pub(crate) fn status(&self) -> Value {
        let (code, body) = http_get(&self.controller.address("http_listen"), "/status");
        assert_eq!(code, 200, "{body}");
        serde_json::from_str(&body).unwrap_or_else(|e| panic!("status is JSON ({e}): {body}"))
    }
}

pub(crate) fn start_controller(dir: &Path, listen: &str, flags: &[&str]) -> Process {
    let buckets = dir.join("buckets");
    let mut args = vec!["controller", "--listen", listen, "--http-listen", "127.0.0.1:0"];
    args.extend(["--region", "r1", "--buckets-dir", buckets.to_str().expect("utf-8 path")]);
    args.extend(flags);
    Process::server(dir, "controller", &args)
}

pub(crate) fn start_aggregator(dir: &Path, zone: &str, listen: &str, up: &str, flags: &[&str]) -> Process {
    let mut args = vec!["aggregator", "--listen", listen, "--http-listen", "127.0.0.1:0"];
    args.extend(["--region", "r1", "--zone", zone, "--controllers", up]);
    args.extend(flags);
    Process::server(dir, &format!("aggregator-{zone}"), &args)
}

/// Starts `sluice ARGS` with its output kept.
pub(crate) fn sluice(args: &[String]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts")
}

/// Waits for a command that ends with one JSON object on its last line.
pub(crate) fn json_of(child: Child) -> Value {
    let out = child.wait_with_output().expect("it ends");
    let stdout = String::from_utf8_lossy(&out.stdout);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{}\n{stdout}\n{stderr}", out.status);
    let last = stdout.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {last}\n{stderr}"))
}

/// A plain HTTP/1.1 GET: status code and body.
pub(crate) fn http_get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("timeout");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("sends");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("reads");
    let code = text.split(' ').nth(1).and_then(|c| c.parse().ok()).unwrap_or(0);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        return (code, unchunk(body));
    }
    (code, body.to_owned())
}

fn unchunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || rest.len() < size {
            break;
        }
        whole.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}

/// A port that was free a moment ago, for programs that cannot choose one themselves.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("binds").local_addr().expect("bound").port()
}

/// An HTTP server that answers 200 and remembers when each request came.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    arrivals: Arc<Mutex<Vec<Instant>>>,
    pub(crate) total: Arc<AtomicU64>,
    _runtime: tokio::runtime::Runtime,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("runtime");
        let arrivals = Arc::new(Mutex::new(Vec::new()));
        let total = Arc::new(AtomicU64::new(0));
        let listener =
            runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("binds");
        let address = listener.local_addr().expect("bound");
        let (kept, counted) = (arrivals.clone(), total.clone());
        let app = axum::Router::new().fallback(move || {
            kept.lock().expect("not poisoned").push(now());
            counted.fetch_add(1, Ordering::Relaxed);
            async { "ok\n" }
        });
        runtime.spawn(async move { axum::serve(listener, app).await });
        Self { address, arrivals, total, _runtime: runtime }
    }

    /// How many requests came from `from` on, within `span`.
    pub(crate) fn count(&self, from: Instant, span: Duration) -> usize {
        let arrivals = self.arrivals.lock().expect("not poisoned");
        arrivals.iter().filter(|t| **t >= from && **t < from + span).count()
    }
}

/// An Envoy process with `configs/envoy/sidecar.yaml` on these ports; killed when dropped.
pub(crate) struct Envoy {
    child: Child,
    pub(crate) address: String,
}

impl Envoy {
    /// `None`, with a word about it, where there is no Envoy.
    pub(crate) fn binary() -> Option<PathBuf> {
        let found = std::env::var_os("SLUICEGATE_ENVOY").map(PathBuf::from).filter(|p| p.exists());
        if found.is_none() {
            eprintln!("SKIPPED: no Envoy; scripts/test installs one and sets SLUICEGATE_ENVOY");
        }
        found
    }

    pub(crate) fn start(
        binary: &Path,
        dir: &Path,
        name: &str,
        sidecar: &str,
        upstream: SocketAddr,
    ) -> Self {
        let listen = format!("127.0.0.1:{}", free_port());
        let admin = free_port();
        let text = fs::read_to_string("../configs/envoy/sidecar.yaml").expect("the example");
        let port = |address: &str| address.rsplit(':').next().expect("a port").to_owned();
        let text = text
            .replace("port_value: 10000", &format!("port_value: {}", port(&listen)))
            .replace("port_value: 8081", &format!("port_value: {}", port(sidecar)))
            .replace("port_value: 8080", &format!("port_value: {}", upstream.port()))
            .replace("port_value: 9901", &format!("port_value: {admin}"));
        let config = dir.join(format!("{name}.yaml"));
        fs::write(&config, text).expect("config");
        let log = fs::File::create(dir.join(format!("{name}.log"))).expect("log");
        let child = Command::new(binary)
            .args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"])
            .arg("-c")
            .arg(&config)
            .stdout(log.try_clone().expect("log"))
            .stderr(log)
            .spawn()
            .expect("envoy starts");
        let mut envoy = Self { child, address: listen };
        let deadline = now() + READY_WITHIN;
        while TcpStream::connect(&envoy.address).is_err() {
            let ended = envoy.child.try_wait().expect("wait");
            let log = || fs::read_to_string(dir.join(format!("{name}.log"))).unwrap_or_default();
            assert!(ended.is_none() && now() < deadline, "{name} does not listen:\n{}", log());
            sleep(Duration::from_millis(50));
        }
        envoy
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The folder of public traces, or `None` with a word about it.
pub(crate) fn trace(name: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("SLUICEGATE_DATA")
        .map_or_else(|| PathBuf::from("../../shared/data"), PathBuf::from);
    let file = dir.join(name);
    if file.exists() {
        return Some(file.canonicalize().expect("a path"));
    }
    eprintln!("SKIPPED: no {} (set SLUICEGATE_DATA)", file.display());
    None
}

/// One second of a `--series` file of `sluice load`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Second {
    pub(crate) offered: u64,
    pub(crate) admitted: u64,
    pub(crate) dropped: u64,
    pub(crate) errors: u64,
}

/// Reads a `--series` file.
pub(crate) fn series(path: &Path) -> Vec<Second> {
    let text = fs::read_to_string(path).expect("the series was written");
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let at = |name| columns.iter().position(|c| *c == name).expect("a column");
    lines
        .map(|line| {
            let cells: Vec<u64> = line.split(',').map(|c| c.parse().expect("a number")).collect();
            Second {
                offered: cells[at("offered")],
                admitted: cells[at("admitted")],
                dropped: cells[at("dropped")],
                errors: cells[at("errors")],
            }
        })
        .collect()
}

/// `sluice load` flags for embedded clients in one zone.
pub(crate) fn load_args(aggregator: &str, zone: &str, service: &str, more: &[&str]) -> Vec<String> {
    let base = ["load", "--aggregators", aggregator, "--zone", zone, "--region", "r1"];
    let base = base.into_iter().chain(["--service", service, "--json"]);
    base.chain(more.iter().copied()).map(str::to_owned).collect()
}
