//! Measures the decision path: makes a limiter, warms it up, then performs `--ops` decisions and
//! nothing else that grows with that number, so that two runs under `valgrind --tool=callgrind`
//! differ by the decisions alone. `scripts/bench-decide` runs it; see `docs/` for the targets.
//!
//! It drives the table itself, as an agent would, and knows nothing of agents or wires.
#![expect(clippy::print_stdout, reason = "it is a program that reports to its caller")]

use std::cell::RefCell;
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
    AdmitRatio, Bucket, Classes, Limit, Match, Mode, Name, OnControlLoss, Overflow, Owner, Pattern,
    Per, Request, Rule, Scope, Select, ServiceBuckets, Sharing, Time, TokenRate,
};

/// Identities (service, caller, procedure) that the decisions go round.
const IDENTITIES: usize = 1024;
/// Live values of the per-value case.
const VALUES: usize = 100_000;
/// Positions of the random order; a power of two.
const ORDER: usize = 1 << 17;
const DIMENSION: &str = "workspace_id";
/// Of the priority case, the best first.
const CLASSES: [&str; 4] = ["critical", "interactive", "batch", "bulk"];

fn main() {
    let args = Args::parse();
    match args.case.as_str() {
        "governor" => governor_plain(&args),
        "governor-keyed" => governor_keyed(&args),
        "clock" => clock(&args),
        "loop" => empty_loop(&args),
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

/// A limiter with its keeper, and the texts of the requests to ask it about.
struct World {
    limiter: Limiter<Coarse>,
    keeper: Keeper,
    identities: Vec<[String; 3]>,
    values: Vec<String>,
    order: Vec<usize>,
}

impl World {
    fn new(args: &Args) -> Self {
        let mut settings = settings();
        if args.shared {
            settings.max_stripes = 0;
        }
        let (limiter, mut keeper) = limiter(&settings, Coarse, 42, Coarse.now());
        let of = Arc::new(buckets(args));
        keeper.configure(Coarse.now(), std::slice::from_ref(&of));
        let mut random = Random(7);
        let values = match args.case.as_str() {
            "per-value" | "fair" => values(VALUES),
            "priority" => CLASSES.map(str::to_owned).into(),
            "descriptor" => values(args.buckets),
            _ => Vec::new(),
        };
        let among = match args.case.as_str() {
            "descriptor" => values.len(),
            _ => values.len().max(IDENTITIES),
        };
        let order = (0..ORDER).map(|_| random.below(among)).collect();
        Self { limiter, keeper, identities: identities(args), values, order }
    }

    /// Makes everything known, as an agent would within its first looks.
    fn warm_up(&mut self, args: &Args) {
        let identities = std::mem::take(&mut self.identities);
        for texts in &identities {
            discard(self.limiter.decide(&request(texts, &[])));
            self.adopt(args);
        }
        let values = std::mem::take(&mut self.values);
        for (value, texts) in values.iter().zip(identities.iter().cycle()) {
            discard(self.limiter.decide(&request(texts, &[(DIMENSION, value)])));
            self.adopt(args);
        }
        (self.identities, self.values) = (identities, values);
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

fn settings() -> Settings {
    let name = |text: &str| Name::new(text).expect("a name");
    Settings::new(name("bench"), 1, name("zone"), name("region"))
}

fn request<'a>(texts: &'a [String; 3], dimensions: &'a [(&'a str, &'a str)]) -> Request<'a> {
    Request { service: &texts[0], caller: &texts[1], procedure: &texts[2], dimensions }
}

/// 1,024 combinations of a service of 8 bytes, callers of 23 to 27 and procedures of 33.
fn identities(args: &Args) -> Vec<[String; 3]> {
    let made = |i: usize| {
        let (caller, tail) = (caller_of(i, args), "x".repeat(i % 5));
        [
            "payments".to_owned(),
            format!("caller-{caller:06}-in-zone-a{tail}"),
            format!("payments.v1.Accounts/Method-{i:05}"),
        ]
    };
    (0..IDENTITIES).map(made).collect()
}

fn values(count: usize) -> Vec<String> {
    (0..count).map(value).collect()
}

fn value(i: usize) -> String {
    format!("ws-{i:09}")
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
        guard: false,
        enforce: 1.0,
        max_drop: 1.0,
        sharing: None,
    };
    let mut buckets = Vec::new();
    match args.case.as_str() {
        "multi3" => {
            for i in 0..3 {
                buckets.push(bucket(format!("all-{i}"), Match::default()));
            }
        }
        "per-value" | "fair" | "priority" => {
            let mut each = bucket("each".to_owned(), Match::default());
            each.sharing = sharing(&args.case);
            each.per = Some(Per {
                dimensions: vec![Name::new(DIMENSION).expect("a name")],
                values: BTreeMap::new(),
                max_keys: 200_000,
                overflow: Overflow::Observe,
            });
            buckets.push(each);
        }
        "descriptor" => {
            for i in 0..args.buckets {
                let dimension = Name::new(DIMENSION).expect("a name");
                let exact = vec![Pattern::Exact(value(i).into())];
                let dimensions = BTreeMap::from([(dimension, exact)]);
                let on = Match { dimensions, ..Match::default() };
                buckets.push(bucket(format!("b-{i}"), on));
            }
        }
        _ => {}
    }
    if buckets.is_empty() {
        for i in 0..args.buckets {
            let exact =
                |n| Pattern::Exact(format!("caller-{i:06}-in-zone-a{}", "x".repeat(n)).into());
            let on = Match { caller: (0..5).map(exact).collect(), ..Match::default() };
            buckets.push(bucket(format!("b-{i}"), on));
        }
    }
    service(buckets)
}

fn sharing(case: &str) -> Option<Sharing> {
    match case {
        "fair" => Some(Sharing::Fair),
        "priority" => {
            let order = CLASSES.map(Box::from).into();
            Some(Sharing::Priority(Classes { order, default: CLASSES.len() - 1 }))
        }
        _ => None,
    }
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
    let (limiter, identities) = (&world.limiter, &world.identities);
    match args.case.as_str() {
        "prepared" | "multi3" | "reject" | "shadow" => {
            let handles: Vec<Prepared<Coarse>> =
                identities.iter().map(|t| limiter.prepare(&request(t, &[]))).collect();
            measure(args, world, thread, barrier, &handles, Prepared::decide)
        }
        "per-value" | "fair" | "priority" => {
            // Only classes ask which attempt it is.
            let dimensions = if args.case == "priority" { 2 } else { 1 };
            let all = |v| [(DIMENSION, v), (Classes::ATTEMPT, "1")].into_iter().take(dimensions);
            let shown: Vec<(&str, &str)> =
                world.values.iter().flat_map(|v| all(v.as_str())).collect();
            let pairs = identities.iter().cycle().zip(shown.chunks(dimensions).cycle());
            let requests: Vec<Request<'_>> = pairs
                .take(identities.len().max(world.values.len()))
                .map(|(t, d)| request(t, d))
                .collect();
            measure(args, world, thread, barrier, &requests, |r| limiter.decide(r))
        }
        "descriptor" => {
            let verdicts = RefCell::new(Vec::new());
            measure(args, world, thread, barrier, &world.values, |value| {
                let dimensions = [(DIMENSION, value.as_str())];
                let descriptor = request(&identities[0], &dimensions);
                limiter.decide_each(&[descriptor], 1, &mut verdicts.borrow_mut())
            })
        }
        _ => {
            let requests: Vec<Request<'_>> = identities.iter().map(|t| request(t, &[])).collect();
            measure(args, world, thread, barrier, &requests, |r| limiter.decide(r))
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
    let order: Vec<&T> = (0..ORDER).map(|n| &of[world.order[(n + turn) % ORDER]]).collect();
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
        identities(args).into_iter().map(|[_, caller, procedure]| (caller, procedure)).collect();
    let mut random = Random(7);
    let order: Vec<&(String, String)> =
        (0..ORDER).map(|_| &keys[random.below(keys.len())]).collect();
    let check = |key| usize::from(limiter.check_key(key).is_ok());
    black_box(keys.iter().map(check).sum::<usize>());
    let start = now_ns();
    let (mut admitted, mut left) = (0, args.ops);
    while left > 0 {
        admitted += order.iter().take(left).map(|key| check(key)).sum::<usize>();
        left = left.saturating_sub(ORDER);
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

/// What the loop of `clock` costs without the clock.
fn empty_loop(args: &Args) {
    let start = now_ns();
    let mut sum = 0_u64;
    for _ in 0..args.ops {
        sum = sum.wrapping_add(black_box(Time::ZERO).as_nanos());
    }
    report(args, &[(elapsed(start), usize::from(black_box(sum) > 0))]);
}

/// Time that this thread ran: what others do on the machine shows in it as little as it can.
fn now_ns() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_nsec.cast_unsigned()
}

fn elapsed(start: u64) -> f64 {
    (now_ns() - start) as f64
}

/// A small generator, so that every run takes the same order.
struct Random(u64);

impl Random {
    #[expect(clippy::cast_possible_truncation, reason = "less than n")]
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * n as u128) >> 64) as usize
    }
}
