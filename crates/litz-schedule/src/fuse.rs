//! Decides which statements share a kernel.
//!
//! Statements are taken in order. Each may join a kernel that it depends on a member of, if all else that it depends on can run
//! before, or a later one that reads the same data over the same points. Of those that take it, by the strategies of their
//! families, it joins the one with which it saves most bytes of memory traffic, and stands alone where there is none. Since
//! everything it depends on is in that kernel or before, or in kernels that depend on nothing and move before it, joining never
//! makes a cycle. Further rounds merge whole kernels that read the same data, whatever is between them in the program: those that go over
//! rows with those that add up columns of the same (`sweep.rs`), which statements are kept apart for, then those over the same points.
//! What would raise the memory of a call by more than it saves is worth stays apart (`pressure.rs`). The result depends on nothing but the program.

use crate::FusionNote;
use crate::context::Cx;
use crate::cost::Savings;
use crate::draft::{Draft, Machine, Relation};
use crate::group::{Group, Member};
use crate::heuristics::ReorderAxes;
use crate::in_order::InOrder;
use crate::no_fuse::NoFuse;
use crate::pressure::Pressure;
use crate::routine::Routine;
use litz_ir::loops::{Span, Stmt};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

/// Forms the drafts of kernels; also says what was considered. Nests that are `apart` begin one each.
pub fn fuse(
    cx: &Cx<'_>,
    machine: &dyn Machine,
    regions: &[Span],
    apart: &BTreeSet<String>,
) -> (Vec<Draft>, Vec<FusionNote>) {
    let &Cx { loops, deps, heuristics, .. } = cx;
    let mut fuser = Fuser {
        cx,
        machine,
        drafts: Vec::new(),
        group_of: Vec::new(),
        is_early: Vec::new(),
        notes: Vec::new(),
        savings: Savings::new(loops, deps),
        pressure: Pressure::default(),
        refused: HashMap::new(),
        is_apart: (loops.stmts.iter().enumerate())
            .map(|(s, stmt)| apart.contains(stmt.name()) || machine.gathers(cx, s))
            .collect(),
        is_held_back: false,
        has_swept: false,
    };
    let mut s = 0;
    while s < loops.stmts.len() {
        match regions.iter().find(|region| region.stmts.start == s && !region.stmts.is_empty()) {
            Some(region) => fuser.place_region(region),
            None => fuser.place(s),
        }
        s = fuser.group_of.len();
    }
    fuser.merge(Relation::Beside);
    fuser.sweep();
    fuser.has_swept = true;
    if fuser.is_held_back {
        fuser.merge(Relation::Beside);
    }
    if heuristics.reorder_axes != ReorderAxes::Never {
        fuser.merge(Relation::Aligned);
    }
    fuser.pack();
    fuser.repeat_rows();
    let order = fuser.order();
    let mut drafts: Vec<Option<Draft>> = fuser.drafts.into_iter().map(Some).collect();
    (order.into_iter().filter_map(|g| drafts[g].take()).collect(), fuser.notes)
}

struct Fuser<'a> {
    cx: &'a Cx<'a>,
    machine: &'a dyn Machine,
    drafts: Vec<Draft>,
    /// For each statement placed, its draft.
    group_of: Vec<usize>,
    /// For each group, whether an earlier one depends on it: it takes in only what depends on nothing else.
    is_early: Vec<bool>,
    notes: Vec<FusionNote>,
    savings: Savings<'a>,
    pressure: Pressure,
    /// Groups and statements that they refused, and why.
    refused: HashMap<(usize, usize), NoFuse>,
    /// For each statement, whether it is to begin a kernel.
    is_apart: Vec<bool>,
    /// A statement was kept apart from what it depends on, since rows may be gone over once for it.
    is_held_back: bool,
    /// Rows that are gone over once have been found.
    has_swept: bool,
}

/// How far ahead of its last producer a statement looks for a kernel to share data with.
const REACH: usize = 16;
/// How far ahead a kernel looks for another one to be merged with, in kernels; all those of a list count as one.
const MERGE_REACH: usize = 64;
/// Bytes of the same buffers that statements must read at least that pass nothing on to each other: with less they have little
/// to do with each other.
const LEAST_SHARED: i64 = 10;

/// A kernel that a statement might join.
struct Candidate {
    group: usize,
    relation: Relation,
    /// Bytes that are neither stored nor loaded if it does.
    bytes: i64,
    /// Bytes that it and members load of the same buffers; the most where it depends on one of them.
    overlap: i64,
}

impl Fuser<'_> {
    fn place(&mut self, s: usize) {
        let mut candidates = if self.is_apart[s] { Vec::new() } else { self.candidates(s) };
        // Those that save most come first, then those that read most of the same buffers, then the nearest.
        candidates.sort_by_key(|candidate| {
            let Candidate { bytes, overlap, group, .. } = *candidate;
            Reverse((bytes, overlap, group))
        });
        let mut is_placed = false;
        for candidate in candidates {
            if is_placed && candidate.relation != Relation::Behind {
                continue;
            }
            // Whether they share one will be seen when all rows are known.
            if !is_placed && candidate.relation == Relation::Behind && self.is_swept(candidate.group, s) {
                self.is_held_back = true;
                continue;
            }
            let verdict = match candidate {
                _ if is_placed => Err(NoFuse::Score),
                Candidate { relation: Relation::Beside, overlap: ..LEAST_SHARED, .. } => Err(NoFuse::Score),
                Candidate { group, relation, .. } => self.taken(group, s, relation),
            };
            let members = self.drafts[candidate.group].stmts();
            let (verdict, growth) = self.weighed(verdict, &members, &[s], candidate.bytes);
            self.note(&candidate, s, verdict.as_ref().map(|_| ()).map_err(|why| *why), growth);
            match verdict {
                Ok(joined) => {
                    self.put(candidate.group, s, joined);
                    is_placed = true;
                }
                // What memory their kernels need is known better when all have been formed.
                Err(NoFuse::Score | NoFuse::Memory) => {}
                Err(why) => drop(self.refused.insert((candidate.group, s), why)),
            }
        }
        if !is_placed {
            self.push(self.alone(s), [s]);
            // What gathers an operand would join others that read the same.
            if self.cx.deps.stmts[s].after.iter().any(|&p| self.machine.gathers(self.cx, p)) {
                self.pack_for(self.drafts.len() - 1);
            }
        }
    }

    /// The kernel of a statement by itself.
    fn alone(&self, s: usize) -> Draft {
        let at_load = self.cx.deps.stmts[s].at_load;
        match &self.cx.loops.stmts[s] {
            Stmt::Extern(_) => Draft::new(Group::of(s), at_load, Routine),
            Stmt::Nest(_) if self.cx.in_order[s] => InOrder::nest(self.cx, s),
            Stmt::Nest(_) => self.machine.alone(self.cx, s),
            Stmt::Recurrence(region) => {
                unreachable!("invariant: region {} is written out", region.name)
            }
        }
    }

    fn place_region(&mut self, region: &Span) {
        let draft = match region.stmts.clone().any(|stmt| self.cx.in_order[stmt]) {
            true => InOrder::region(region),
            false => self.machine.region(self.cx, region),
        };
        self.push(draft, region.stmts.clone());
    }

    fn push(&mut self, draft: Draft, stmts: impl IntoIterator<Item = usize>) {
        self.group_of.extend(stmts.into_iter().map(|_| self.drafts.len()));
        self.drafts.push(draft);
        self.is_early.push(false);
    }

    /// Groups that statement `s` might join: those with something that it depends on, if all others with such can run before
    /// them, and later ones that read what it reads.
    fn candidates(&self, s: usize) -> Vec<Candidate> {
        let info = &self.cx.deps.stmts[s];
        let with = |is_wanted: &dyn Fn(usize) -> bool| -> BTreeSet<usize> {
            info.after.iter().filter(|&&p| is_wanted(p)).map(|&p| self.group_of[p]).collect()
        };
        // What runs at load has run, so that it counts only where there is nothing else.
        let mut behind = with(&|p| info.at_load || !self.cx.deps.stmts[p].at_load);
        let bound = behind.iter().copied().rfind(|&g| !self.is_free(g));
        if let Some(g) = bound {
            behind = behind.split_off(&g);
        }
        let last = bound.or(behind.last().copied()).or_else(|| with(&|_| true).last().copied());
        behind.extend(last);
        // What gathers an operand may do so earlier, as soon as what it reads is there.
        let needs = |&g: &usize| match self.drafts[g].stmts()[..] {
            [p] if self.machine.gathers(self.cx, p) => self.before(g).max(),
            _ => Some(g),
        };
        let from = behind.iter().filter_map(needs).max().map_or(0, |g| g + 1);
        let from = from.max(self.drafts.len().saturating_sub(REACH));
        let mut beside = BTreeSet::new();
        for &buf in &info.reads {
            let users = self.cx.deps.users[buf].iter().take_while(|user| **user < s);
            let reads = |user: &&usize| self.cx.deps.stmts[**user].reads.contains(&buf);
            beside.extend(users.filter(reads).map(|&user| self.group_of[user]).filter(|&g| g >= from));
        }
        let candidate = |(group, relation): (usize, Relation)| {
            let members = self.drafts[group].stmts();
            let bytes = self.savings.of(&members, &[s]);
            let overlap = match relation {
                Relation::Behind => i64::MAX,
                Relation::Beside | Relation::Aligned => self.savings.overlap(&members, s),
            };
            Candidate { group, relation, bytes, overlap }
        };
        let behind = behind.into_iter().map(|g| (g, Relation::Behind));
        let all = behind.chain(beside.into_iter().map(|g| (g, Relation::Beside))).map(candidate);
        // One that only stores to the same buffer has nothing to offer, unless it is the last before.
        all.filter(|c| c.relation == Relation::Beside || c.bytes > 0 || Some(c.group) == last).collect()
    }

    /// Group `g` with statement `s`, or why not.
    fn taken(&self, g: usize, s: usize, relation: Relation) -> Result<Draft, NoFuse> {
        let group = &self.drafts[g];
        let depends_on_other = |p: &usize| self.group_of[*p] != g && !self.has_run(*p, group.at_load);
        match self.is_early[g] && self.cx.deps.stmts[s].after.iter().any(depends_on_other) {
            true => Err(NoFuse::RunsEarly),
            false => group.take(self.cx, s, relation),
        }
    }

    /// The kernel of the statements `a` and `b`, unless it needs too much memory for what it saves, and by how much that grows then.
    fn weighed(
        &mut self,
        verdict: Result<Draft, NoFuse>,
        a: &[usize],
        b: &[usize],
        saved: i64,
    ) -> (Result<Draft, NoFuse>, i64) {
        if verdict.as_ref().map_or(true, |joined| joined.at_load) {
            return (verdict, 0);
        }
        let (cx, drafts) = (self.cx, &self.drafts);
        let kernels = || {
            let formed = drafts.iter().filter(|draft| !draft.at_load && !draft.is_empty()).map(Draft::stmts);
            let others = (self.group_of.len()..cx.loops.stmts.len()).filter(|&s| !cx.deps.stmts[s].at_load);
            formed.chain(others.map(|s| vec![s])).collect()
        };
        match self.pressure.growth(cx, kernels, (a, b), saved) {
            Some(growth) => (Err(NoFuse::Memory), growth),
            None => (verdict, 0),
        }
    }

    /// Puts statement `s` into group `g`, which becomes `joined`.
    fn put(&mut self, g: usize, s: usize, joined: Draft) {
        self.drafts[g] = joined;
        self.pressure.forget();
        self.group_of.push(g);
        for &p in &self.cx.deps.stmts[s].after {
            self.is_early[self.group_of[p]] |= self.group_of[p] > g;
        }
    }

    /// Records what was decided about statement `s` and a group, by the last member that it depends on, or the first.
    fn note(&mut self, candidate: &Candidate, s: usize, verdict: Result<(), NoFuse>, growth: i64) {
        let Candidate { group, relation, bytes, .. } = *candidate;
        let members = &self.drafts[group].group.members;
        let producer = match relation {
            Relation::Behind => {
                self.cx.deps.stmts[s].after.iter().copied().rfind(|&p| self.group_of[p] == group)
            }
            Relation::Beside | Relation::Aligned => None,
        };
        let producer = producer.unwrap_or(members[0].stmt);
        let is_at_call = !self.drafts[group].at_load && !self.cx.deps.stmts[s].at_load;
        self.say(FusionNote {
            producer: self.cx.loops.stmts[producer].name().to_owned(),
            consumer: self.cx.loops.stmts[s].name().to_owned(),
            verdict,
            bytes: if is_at_call { bytes } else { 0 },
            growth,
        });
    }

    /// Keeps a note. A consumer is left alone for memory once, and not any more when it is in a kernel with others.
    fn say(&mut self, note: FusionNote) {
        let is_of_memory = |note: &FusionNote| note.verdict == Err(NoFuse::Memory);
        if is_of_memory(&note) && self.notes.iter().any(|n| is_of_memory(n) && n.consumer == note.consumer) {
            return;
        }
        if note.verdict.is_ok() {
            self.notes.retain(|other| !is_of_memory(other) || other.consumer != note.consumer);
        }
        self.notes.push(note);
    }

    /// Whether a group can run before any other that runs when it does: a load, or a call.
    fn is_free(&self, g: usize) -> bool {
        let stmts = self.drafts[g].stmts();
        let mut after = stmts.iter().flat_map(|&stmt| &self.cx.deps.stmts[stmt].after);
        after.all(|&p| self.group_of[p] == g || self.has_run(p, self.drafts[g].at_load))
    }

    /// Whether a statement has run when a load, or a call, begins.
    fn has_run(&self, s: usize, at_load: bool) -> bool {
        self.cx.deps.stmts[s].at_load && !at_load
    }

    fn adds_up(&self, s: usize) -> bool {
        self.machine.adds_up(self.cx, s)
    }

    /// Whether statement `s`, which depends on group `g`, is to add up its rows in another way, or the group adds up rows that another
    /// statement goes over.
    fn is_swept(&self, g: usize, s: usize) -> bool {
        let deps = &self.cx.deps.stmts;
        let group = &self.drafts[g];
        if self.adds_up(s) {
            let bytes = self.savings.of(&group.stmts(), &[s]);
            if self.machine.sweep(self.cx, group, &self.alone(s), bytes).is_ok() {
                return true;
            }
        }
        if !group.group.members.iter().all(|member| self.adds_up(member.stmt)) {
            return false;
        }
        let sums = group.stmts();
        let read: BTreeSet<_> = sums.iter().flat_map(|&at| &deps[at].reads).collect();
        let users: BTreeSet<usize> =
            read.into_iter().flat_map(|&buf| &self.cx.deps.users[buf]).copied().collect();
        let goes_over = |&at: &usize| {
            let bytes = self.savings.of(&[at], &sums);
            let alone = || Some(self.alone(at));
            let placed = self.group_of.get(at).map(|&of| &self.drafts[of]);
            let rows =
                placed.map_or_else(alone, |group| (!group.group.members.is_empty()).then(|| group.clone()));
            rows.is_some_and(|rows| self.machine.sweep(self.cx, &rows, group, bytes).is_ok())
                && !self.depends_on_any(at, &sums)
        };
        users.into_iter().filter(|at| !sums.contains(at)).any(|at| goes_over(&at))
    }

    /// Whether a statement depends on one of others, or on one that does.
    fn depends_on_any(&self, at: usize, others: &[usize]) -> bool {
        let mut seen = BTreeSet::new();
        let mut waiting = vec![at];
        while let Some(at) = waiting.pop() {
            if others.contains(&at) {
                return true;
            }
            let before = self.cx.deps.stmts[at].after.iter().copied();
            waiting.extend(before.filter(|&before| seen.insert(before)));
        }
        false
    }

    /// Puts sums over blocks of rows into the kernels that go over these rows, those first with which most bytes are saved.
    fn sweep(&mut self) {
        let mut pairs: BTreeSet<(usize, usize)> = BTreeSet::new();
        let is_open = |&g: &usize| {
            let group = &self.drafts[g];
            group.family.is_dissolvable()
                && !group.at_load
                && !group.group.members.iter().any(|member| self.is_apart[member.stmt])
        };
        for users in self.cx.deps.users.values() {
            let groups: BTreeSet<usize> = users.iter().map(|&user| self.group_of[user]).collect();
            let open: Vec<usize> = groups.into_iter().filter(is_open).collect();
            let is_sum = |member: &Member| self.adds_up(member.stmt);
            for &sums in open.iter().filter(|&&g| self.drafts[g].group.members.iter().all(is_sum)) {
                let rows = open.iter().filter(|&&g| g != sums && g.abs_diff(sums) <= MERGE_REACH);
                pairs.extend(rows.map(|&rows| (rows, sums)));
            }
        }
        let bytes = |&(rows, sums): &(usize, usize)| {
            self.savings.of(&self.drafts[rows].stmts(), &self.drafts[sums].stmts())
        };
        let mut pairs: Vec<(i64, usize, usize)> =
            pairs.iter().map(|pair| (bytes(pair), pair.0, pair.1)).collect();
        pairs.sort_by_key(|&(bytes, rows, sums)| (Reverse(bytes), rows.abs_diff(sums)));
        for (bytes, rows, sums) in pairs {
            let (first, second) = (self.drafts[rows].clone(), self.drafts[sums].clone());
            let swept = self.machine.sweep(self.cx, &first, &second, bytes);
            if swept.is_err() || self.has_between(rows, sums) {
                continue;
            }
            let name = |g: &Draft| self.cx.loops.stmts[g.group.members[0].stmt].name().to_owned();
            let (producer, consumer) = (name(&first), name(&second));
            let (swept, growth) = self.weighed(swept, &first.stmts(), &second.stmts(), bytes);
            let verdict = swept.as_ref().map(|_| ()).map_err(|why| *why);
            self.say(FusionNote { producer, consumer, verdict, bytes, growth });
            let Ok(group) = swept else { continue };
            self.pressure.forget();
            group.group.members.iter().for_each(|member| self.group_of[member.stmt] = rows);
            self.drafts[rows] = group;
            self.drafts[sums].group.members.clear();
        }
    }

    /// Puts what packs the right operand of a product into its kernel.
    fn pack(&mut self) {
        (0..self.drafts.len()).for_each(|g| self.pack_for(g));
    }

    /// Lets the kernel of a product pack its operands itself, as long as one statement does that for one and the product wants it.
    fn pack_for(&mut self, g: usize) {
        while self.drafts[g].family.wants_packing() && !self.drafts[g].group.members.is_empty() {
            let before: BTreeSet<usize> = self.before(g).filter(|&p| p != g).collect();
            let found = before.into_iter().find_map(|p| {
                let joined = self.machine.pack(self.cx, &self.drafts[p], &self.drafts[g])?;
                (!self.has_between(p, g)).then_some((p, joined))
            });
            let Some((p, joined)) = found else { return };
            self.absorb(p, g, joined);
        }
    }

    /// Lets kernels whose rows are all multiplied with one row make that themselves, each block for itself.
    fn repeat_rows(&mut self) {
        for g in 0..self.drafts.len() {
            let is_apart = self.drafts[g].group.members.first().is_none_or(|head| self.is_apart[head.stmt]);
            let before: BTreeSet<usize> = self.before(g).filter(|&p| p != g && !is_apart).collect();
            let found = before.into_iter().find_map(|p| {
                let joined = self.machine.repeat_row(self.cx, &self.drafts[p], &self.drafts[g])?;
                (!self.has_between(p, g)).then_some((p, joined))
            });
            found.into_iter().for_each(|(p, joined)| self.absorb(p, g, joined));
        }
    }

    /// Puts kernel `p` into a later one, which becomes `joined`.
    fn absorb(&mut self, p: usize, g: usize, joined: Draft) {
        let name = |g: usize| self.cx.loops.stmts[self.drafts[g].group.members[0].stmt].name().to_owned();
        let (producer, consumer) = (name(p), name(g));
        let (a, b) = (self.drafts[p].stmts(), self.drafts[g].stmts());
        let bytes = self.savings.of(&a, &b);
        self.notes.retain(|note| note.producer != producer || note.consumer != consumer);
        let (joined, growth) = self.weighed(Ok(joined), &a, &b, bytes);
        let verdict = joined.as_ref().map(|_| ()).map_err(|why| *why);
        self.say(FusionNote { producer, consumer, verdict, bytes, growth });
        let Ok(joined) = joined else { return };
        self.pressure.forget();
        joined.stmts().into_iter().for_each(|stmt| self.group_of[stmt] = g);
        self.drafts[g] = joined;
        self.drafts[p].group.members.clear();
    }

    /// Merges whole kernels of a call, those first with which most bytes are saved. Statements that do not depend on each other
    /// are put `beside` each other.
    fn merge(&mut self, beside: Relation) {
        let mut pairs: Vec<(i64, usize, usize)> = Vec::new();
        for (a, b) in self.pairs(beside) {
            let bytes = self.savings.of(&self.drafts[a].stmts(), &self.drafts[b].stmts());
            if bytes >= LEAST_SHARED {
                pairs.push((bytes, a, b));
            }
        }
        pairs.sort_by_key(|&(bytes, a, b)| (Reverse(bytes), a.abs_diff(b)));
        for (bytes, a, b) in pairs {
            // One of them may be part of another by then.
            if self.drafts[a].is_empty() || self.drafts[b].is_empty() {
                continue;
            }
            let verdict = self.merged(a, b, beside);
            if verdict.as_ref().is_err_and(|why| *why == NoFuse::Score) {
                self.is_held_back = true;
                continue;
            }
            let both = [a, b].map(|g| self.drafts[g].stmts());
            let (verdict, growth) = self.weighed(verdict, &both[0], &both[1], bytes);
            // Why kernels differ in shape was said when one refused the other's first statement.
            if beside != Relation::Aligned || matches!(verdict, Ok(_) | Err(NoFuse::Memory)) {
                let first =
                    |g: usize| self.cx.loops.stmts[self.drafts[g].group.members[0].stmt].name().to_owned();
                self.say(FusionNote {
                    producer: first(a),
                    consumer: first(b),
                    verdict: verdict.as_ref().map(|_| ()).map_err(|why| *why),
                    bytes,
                    growth,
                });
            }
            match verdict {
                Ok(group) => {
                    group.group.members.iter().for_each(|member| self.group_of[member.stmt] = a);
                    self.drafts[a] = group;
                    self.drafts[b].group.members.clear();
                    self.pressure.forget();
                }
                Err(why) => drop(self.refused.insert((a, self.drafts[b].group.members[0].stmt), why)),
            }
        }
    }

    /// Kernels of a call that share a buffer, in the order in which they run, of which the first did not refuse the first
    /// statement of the second for a reason that still holds.
    fn pairs(&self, beside: Relation) -> BTreeSet<(usize, usize)> {
        let is_worth_it = |refused: Option<&NoFuse>| match beside {
            Relation::Aligned => refused.is_some_and(|why| why.is_of_shape()),
            Relation::Beside | Relation::Behind => refused.is_none(),
        };
        let is_open = |&(a, b): &(usize, usize)| {
            let (first, second) = (&self.drafts[a], &self.drafts[b]);
            let head = second.group.members[0].stmt;
            let is_at_call = !first.at_load && !second.at_load && !self.is_apart[head];
            let suits = first.family.closed().is_none() && second.family.is_dissolvable();
            is_at_call && suits && is_worth_it(self.refused.get(&(a, head)))
        };
        let in_order = |a: usize, b: usize| match self.is_early[b] && self.before(a).any(|g| g == b) {
            true => (b, a),
            false => (a, b),
        };
        let place = self.places();
        let mut pairs = BTreeSet::new();
        for users in self.cx.deps.users.values() {
            let groups: BTreeSet<usize> = users.iter().map(|&user| self.group_of[user]).collect();
            for &b in groups.iter().filter(|&&b| !self.drafts[b].is_empty()) {
                let others = groups.range(..b).filter(|&&a| place[b] - place[a] <= MERGE_REACH);
                pairs.extend(others.map(|&a| in_order(a, b)).filter(is_open));
            }
        }
        pairs
    }

    /// For each group how many stand before it. Neighbours whose nests have the same names are those of a list of tensors, and stand
    /// at one place.
    fn places(&self) -> Vec<usize> {
        let names = |group: &Draft| -> Vec<&String> {
            let nests = group.stmts().into_iter().flat_map(|stmt| self.cx.loops.stmts[stmt].nests());
            nests.flat_map(|nest| &nest.from).collect()
        };
        let mut places: Vec<usize> = Vec::with_capacity(self.drafts.len());
        let mut before: Vec<&String> = Vec::new();
        for group in &self.drafts {
            let own = names(group);
            let is_mate = !own.is_empty() && own == before;
            places.push(places.last().map_or(0, |&last| if is_mate { last } else { last + 1 }));
            before = own;
        }
        places
    }

    /// The members of group `a`, then those of `b`, as one group.
    fn merged(&self, a: usize, b: usize, beside: Relation) -> Result<Draft, NoFuse> {
        let mut joined = self.drafts[a].clone();
        for member in &self.drafts[b].group.members {
            let after = &self.cx.deps.stmts[member.stmt].after;
            let is_behind = joined.group.members.iter().any(|m| after.contains(&m.stmt));
            let relation = if is_behind { Relation::Behind } else { beside };
            if is_behind && !self.has_swept && self.is_swept(a, member.stmt) {
                return Err(NoFuse::Score);
            }
            joined = joined.take(self.cx, member.stmt, relation)?;
        }
        match self.has_between(a, b) {
            true => Err(NoFuse::RunsEarly),
            false => Ok(joined),
        }
    }

    /// Whether group `a` depends on `b`, or `b` on another one that depends on `a`.
    fn has_between(&self, a: usize, b: usize) -> bool {
        let mut seen = vec![false; self.drafts.len()];
        let others = self.before(b).filter(|&g| g != a && g != b);
        let mut waiting: Vec<usize> = others.chain(self.before(a).filter(|&g| g != a)).collect();
        while let Some(g) = waiting.pop() {
            if g == a || g == b {
                return true;
            }
            if !std::mem::replace(&mut seen[g], true) {
                waiting.extend(self.before(g).filter(|&other| other != g));
            }
        }
        false
    }

    /// Groups with something that members of `g` depend on, `g` perhaps among them.
    fn before(&self, g: usize) -> impl Iterator<Item = usize> {
        let stmts = self.drafts[g].stmts().into_iter();
        stmts.flat_map(|stmt| &self.cx.deps.stmts[stmt].after).map(|&p| self.group_of[p])
    }

    /// The groups in an order in which they can run: those of the load, then those of a call, each as they were formed, but for
    /// those that others need before.
    fn order(&self) -> Vec<usize> {
        let (load, call): (Vec<usize>, Vec<usize>) =
            (0..self.drafts.len()).partition(|&g| self.drafts[g].at_load);
        let (mut order, mut is_placed) = (Vec::new(), vec![false; self.drafts.len()]);
        for root in load.into_iter().chain(call) {
            let mut path = vec![root];
            while let Some(&g) = path.last() {
                let next = self.before(g).filter(|&before| before != g && !is_placed[before]).min();
                match next {
                    Some(before) => path.push(before),
                    None => {
                        path.pop();
                        if !std::mem::replace(&mut is_placed[g], true) {
                            order.push(g);
                        }
                    }
                }
            }
        }
        order.retain(|&g| !self.drafts[g].is_empty());
        order
    }
}
