//! Measures the decision path: makes a limiter, warms it up, then performs `--ops` decisions and
//! nothing else that grows with that number, so that two runs under `valgrind --tool=callgrind`
//! differ by the decisions alone. `scripts/bench-decide` runs it; see `docs/` for the targets.
//!
//! It drives the table itself, as an agent would, and knows nothing of agents or wires.
#![expect(clippy::print_stdout, reason = "it is a program that reports to its caller")]

use std::collections::BTreeMap;
use std::env;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::Barrier;
use std::time::Duration;

use governor::{Quota, RateLimiter};
use rustix::time::{ClockId, clock_gettime};
use sluicegate_client_core::{
    CoarseClock, Keeper, KeyEvent, KeyHandle, Limiter, Outcome, Prepared, Settings, limiter,
};
use sluicegate_model::{
    AdmitRatio, Bucket, Limit, Match, Mode, Name, OnControlLoss, Overflow, Owner, Pattern, Per,
    Request, Rule, Scope, Select, ServiceBuckets, Time, TokenRate,
};

/// Identities (service, caller, procedure) that the decisions go round.
const IDENTITIES: usize = 1024;
/// Live values of the per-value case.
const VALUES: usize = 100_000;
/// Positions of the random order; a power of two.
const ORDER: usize = 1 << 16;

fn main() {
    let args = Args::parse();
    match args.case.as_str() {
        "governor" => governor_plain(&args),
        "governor-keyed" => governor_keyed(&args),
        "clock" => clock(&args),
        "loop" => empty_loop(&args),
        "memory" => memory(),
        _ => ours(&args),
    }
}

/// What the command line says.
struct Args {
    case: String,
    buckets: usize,
    ops: usize,
    admit: f64,
    threads: usize,
    /// Each thread has a limiter of its own: the control for two threads on one.
    apart: bool,
    /// Print nanoseconds a decision.
    time: bool,
    /// Without stripes: every thread counts on the shared cells.
    shared: bool,
}

impl Args {
    fn parse() -> Self {
        let mut flags: BTreeMap<String, String> = BTreeMap::new();
        let mut args = env::args().skip(1).peekable();
        while let Some(flag) = args.next() {
            let value = args.next_if(|v| !v.starts_with("--")).unwrap_or_default();
            flags.insert(flag, value);
        }
        let number = |name: &str, default: f64| {
            flags.get(name).map_or(default, |v| v.replace('_', "").parse().expect("a number"))
        };
        let count = |name: &str, default: f64| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts")]
            let count = number(name, default) as usize;
            count
        };
        Self {
            case: flags.get("--case").cloned().unwrap_or_else(|| "prepared".to_owned()),
            buckets: count("--buckets", 10.0),
            ops: count("--ops", 1_000_000.0),
            admit: number("--admit", 1.0),
            threads: count("--threads", 1.0).max(1),
            apart: flags.contains_key("--apart"),
            time: flags.contains_key("--time"),
            shared: flags.contains_key("--shared"),
        }
    }
}

#[derive(Clone, Copy)]
struct Coarse;

impl CoarseClock for Coarse {
    #[inline]
    fn now(&self) -> Time {
        let t = clock_gettime(ClockId::MonotonicCoarse);
        Time::from_nanos(t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_nsec.cast_unsigned())
    }
}

/// A limiter with its keeper, and the requests to ask it about.
struct World {
    limiter: Limiter<Coarse>,
    keeper: Keeper,
    texts: Vec<[String; 4]>,
    order: Vec<u32>,
}

impl World {
    fn new(args: &Args) -> Self {
        let name = |text: &str| Name::new(text).expect("a name");
        let mut settings = Settings::new(name("bench"), 1, name("zone"), name("region"));
        if args.shared {
            settings.max_stripes = 0;
        }
        let (limiter, mut keeper) = limiter(&settings, Coarse, 42, Coarse.now());
        let of = Arc::new(buckets(args));
        keeper.configure(Coarse.now(), std::slice::from_ref(&of));
        let values = if args.case == "per-value" { VALUES } else { IDENTITIES };
        let texts = texts(args, values);
        let mut random = Random(7);
        let order = (0..ORDER).map(|_| random.below(texts.len())).collect();
        Self { limiter, keeper, texts, order }
    }

    /// Makes everything known, as an agent would within its first looks.
    fn warm_up(&mut self, args: &Args) {
        let with_values = args.case == "per-value";
        let texts = std::mem::take(&mut self.texts);
        for text in &texts {
            let dimensions = [("workspace_id", text[3].as_str())];
            discard(
                self.limiter.decide(&request(text, if with_values { &dimensions } else { &[] })),
            );
            self.adopt(args);
        }
        self.texts = texts;
        self.keeper.beat(Coarse.now());
    }

    fn adopt(&mut self, args: &Args) {
        self.keeper.adopt(Coarse.now(), usize::MAX);
        while let Some(event) = self.keeper.poll_event() {
            if let KeyEvent::New(key) = event {
                self.set(key, args);
            }
        }
    }

    fn set(&mut self, key: KeyHandle, args: &Args) {
        if !self.keeper.is_value(key) {
            self.keeper.promote(key);
        }
        self.keeper.set_budget(key, Some(u64::MAX / 2));
        self.keeper.set_admit(key, AdmitRatio::from_share(args.admit), Duration::from_secs(1));
    }
}

fn request<'a>(text: &'a [String; 4], dimensions: &'a [(&'a str, &'a str)]) -> Request<'a> {
    Request { service: &text[0], caller: &text[1], procedure: &text[2], dimensions }
}

/// 1,024 combinations of a service of 8 bytes, callers of 22 to 26 and procedures of 33, and values
/// of 12.
fn texts(args: &Args, values: usize) -> Vec<[String; 4]> {
    let made = |i: usize| {
        let identity = i % IDENTITIES;
        let caller = format!(
            "caller-{:04}-in-zone-{}{}",
            caller_of(identity, args),
            'a',
            "x".repeat(identity % 5)
        );
        [
            "payments".to_owned(),
            caller,
            format!("payments.v1.Accounts/Method-{identity:05}"),
            format!("ws-{i:09}"),
        ]
    };
    (0..values).map(made).collect()
}

fn caller_of(identity: usize, args: &Args) -> usize {
    if args.case == "no-match" { identity + 100_000 } else { identity % args.buckets.max(1) }
}

/// `--buckets` of them, one for each caller, and what the case is about.
fn buckets(args: &Args) -> ServiceBuckets {
    let rate = TokenRate::per_second(1_000_000_000, None).expect("a rate");
    let mode = if args.case == "shadow" { Mode::Shadow } else { Mode::Deny };
    let bucket = |name: String, on: Match| Bucket {
        name: Name::new(&name).expect("a name"),
        scope: Scope::Region,
        rule: Rule { on, not: Vec::new() },
        limit: Limit::Tokens(rate),
        mode,
        per: None,
        on_control_loss: OnControlLoss::Open,
    };
    let mut buckets = Vec::new();
    match args.case.as_str() {
        "multi3" => {
            for i in 0..3 {
                buckets.push(bucket(format!("all-{i}"), Match::default()));
            }
        }
        "per-value" => {
            let mut each = bucket("each".to_owned(), Match::default());
            each.per = Some(Per {
                dimensions: vec![Name::new("workspace_id").expect("a name")],
                values: BTreeMap::new(),
                max_keys: 200_000,
                overflow: Overflow::Observe,
            });
            buckets.push(each);
        }
        _ => {}
    }
    // Of the ten thousand buckets each has callers of its own; a caller's texts end differently.
    if matches!(args.case.as_str(), "multi3" | "per-value") {
        return service(buckets);
    }
    for i in 0..args.buckets {
        let caller = vec![Pattern::Prefix(format!("caller-{i:04}-").into())];
        let exact = (0..5)
            .map(|n| Pattern::Exact(format!("caller-{i:04}-in-zone-a{}", "x".repeat(n)).into()))
            .collect();
        let caller = if args.buckets > 64 { exact } else { caller };
        buckets.push(bucket(format!("b-{i}"), Match { caller, ..Match::default() }));
    }
    service(buckets)
}

fn service(buckets: Vec<Bucket>) -> ServiceBuckets {
    ServiceBuckets {
        service: Name::new("payments").expect("a name"),
        owner: Owner::default(),
        select: Select::All,
        buckets,
    }
}

fn ours(args: &Args) {
    let mut worlds: Vec<World> =
        (0..if args.apart { args.threads } else { 1 }).map(|_| World::new(args)).collect();
    worlds.iter_mut().for_each(|w| w.warm_up(args));
    let barrier = Barrier::new(args.threads);
    let elapsed: Vec<(f64, usize)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads)
            .map(|i| {
                let (world, barrier) = (&worlds[i % worlds.len()], &barrier);
                let run = move || run(args, world, i, barrier);
                // In this very thread if there is only one: nothing else for callgrind to count.
                if args.threads == 1 { Err(run()) } else { Ok(scope.spawn(run)) }
            })
            .collect();
        let joined = threads.into_iter().map(|t| match t {
            Ok(handle) => handle.join().expect("no panic"),
            Err(done) => done,
        });
        joined.collect()
    });
    report(args, &elapsed);
}

fn run(args: &Args, world: &World, thread: usize, barrier: &Barrier) -> (f64, usize) {
    match args.case.as_str() {
        "prepared" | "multi3" | "reject" | "shadow" => {
            let texts = world.texts.iter().take(IDENTITIES);
            let handles: Vec<Prepared<Coarse>> =
                texts.map(|t| world.limiter.prepare(&request(t, &[]))).collect();
            measure(args, world, thread, barrier, &handles, |handle| handle.decide())
        }
        case => {
            let with_values = case == "per-value";
            let dimensions: Vec<[(&str, &str); 1]> =
                world.texts.iter().map(|t| [("workspace_id", t[3].as_str())]).collect();
            let shown = if with_values { 1 } else { 0 };
            let requests: Vec<Request<'_>> = world
                .texts
                .iter()
                .zip(&dimensions)
                .map(|(t, d)| request(t, &d[..shown]))
                .collect();
            measure(args, world, thread, barrier, &requests, |r| world.limiter.decide(r))
        }
    }
}

/// Goes round `of` in random order: once to warm up, then for as many decisions as are asked for.
#[inline(always)]
fn measure<T>(
    args: &Args,
    world: &World,
    thread: usize,
    barrier: &Barrier,
    of: &[T],
    decide: impl Fn(&T) -> Outcome,
) -> (f64, usize) {
    of.iter().for_each(|one| discard(decide(one)));
    let turn = thread * 4099;
    let order: Vec<&T> =
        (0..ORDER).map(|n| &of[world.order[(n + turn) % ORDER] as usize]).collect();
    barrier.wait();
    let start = now_ns();
    let (mut admitted, mut left) = (0, args.ops);
    while left > 0 {
        for one in order.iter().take(left) {
            admitted += usize::from(decide(one).is_admitted());
        }
        left = left.saturating_sub(ORDER);
    }
    (elapsed(start), black_box(admitted))
}

fn discard(outcome: Outcome) {
    black_box(outcome.is_admitted());
}

fn report(args: &Args, threads: &[(f64, usize)]) {
    let admitted: usize = threads.iter().map(|t| t.1).sum();
    println!("admitted {admitted} of {}", args.ops * threads.len());
    if args.time {
        let slowest = threads.iter().map(|t| t.0).fold(0.0, f64::max);
        println!("ns {:.2}", slowest / args.ops as f64);
    }
}

fn governor_plain(args: &Args) {
    let quota = Quota::per_second(NonZeroU32::new(1_000_000_000).expect("not zero"));
    let limiter = RateLimiter::direct(quota);
    let start = now_ns();
    let mut admitted = 0;
    for _ in 0..args.ops {
        admitted += usize::from(limiter.check().is_ok());
    }
    report(args, &[(elapsed(start), black_box(admitted))]);
}

fn governor_keyed(args: &Args) {
    let quota = Quota::per_second(NonZeroU32::new(1_000_000_000).expect("not zero"));
    let limiter: RateLimiter<(String, String), _, _> = RateLimiter::keyed(quota);
    let keys: Vec<(String, String)> =
        texts(args, IDENTITIES).into_iter().map(|[_, c, p, _]| (c, p)).collect();
    let mut random = Random(7);
    let order: Vec<u32> = (0..ORDER).map(|_| random.below(keys.len())).collect();
    keys.iter().for_each(|k| drop(black_box(limiter.check_key(k))));
    let start = now_ns();
    let mut admitted = 0;
    for n in 0..args.ops {
        admitted += usize::from(limiter.check_key(&keys[order[n % ORDER] as usize]).is_ok());
    }
    report(args, &[(elapsed(start), black_box(admitted))]);
}

fn clock(args: &Args) {
    let start = now_ns();
    let mut sum = 0_u64;
    for _ in 0..args.ops {
        sum = sum.wrapping_add(black_box(Coarse.now()).as_nanos());
    }
    report(args, &[(elapsed(start), usize::from(black_box(sum) > 0))]);
}

fn empty_loop(args: &Args) {
    let mut random = Random(7);
    let order: Vec<u32> = (0..ORDER).map(|_| random.below(IDENTITIES)).collect();
    let start = now_ns();
    let mut sum = 0;
    for n in 0..args.ops {
        sum += black_box(order[n % ORDER]) as usize & 1;
    }
    report(args, &[(elapsed(start), black_box(sum))]);
}

/// What 100,000 value keys cost: resident memory with them, less without.
fn memory() {
    let args = Args { case: "per-value".to_owned(), ops: 0, ..Args::parse() };
    let mut world = World::new(&args);
    world.adopt(&args);
    let before = resident_bytes();
    world.warm_up(&args);
    println!("bytes {}", resident_bytes().saturating_sub(before));
    black_box(&world.limiter);
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|p| p.parse::<usize>().ok());
    pages.unwrap_or(0) * rustix::param::page_size()
}

fn now_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_nsec.cast_unsigned()
}

fn elapsed(start: u64) -> f64 {
    (now_ns() - start) as f64
}

/// A small generator, so that every run takes the same order.
struct Random(u64);

impl Random {
    #[expect(clippy::cast_possible_truncation, reason = "bounded by `n`, a few hundred thousand")]
    fn below(&mut self, n: usize) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * n as u128) >> 64) as u32
    }
}
