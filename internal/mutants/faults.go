package main

// The suites that are to find a fault: the tests of its own package, and the simulation.
const (
	ofReplica = "./internal/replica"
	ofAccess  = "./internal/replica/access"
	ofLease   = "./internal/replica/lease"
	ofState   = "./internal/mvcc"
	ofRecord  = "./internal/record"
	ofEtcd    = "./internal/etcdapi"
	ofFile    = "./internal/journal/filelog"
	ofSegment = "./internal/journal/filelog/segment"
	ofObjects = "./internal/journal/objectlog"
	ofS3      = "./internal/journal/s3log/..."
	ofStores  = "./internal/sim/stores"
	ofSQL     = "./internal/journal/sqllog"
	ofFrame   = "./internal/journal/frame"
	ofNATS    = "./internal/journal/natslog"
	ofGoogle  = "./internal/journal/gcslog"
	ofAzure   = "./internal/journal/azurelog"
	ofShot    = "./internal/snapshot"
	ofRegions = "./internal/region/explore -states=100000 -walks=2000"
	ofJoins   = "./internal/region/explore -test.run=Join -states=200000 -walks=2000"
	ofRemoval = "./internal/region/explore -test.run=Removal|Rejoin -states=200000 -walks=2000"
	simulated = "./internal/sim -seeds=300"
)

// faults are the faults that tests must find. Each is one that an engineer could make,
// and most were made by somebody: see docs/known-faults.md.
var faults = []fault{
	// The outcome of a write.
	{"a write is acknowledged before its record is stored", "internal/replica/loop.go",
		"l.window.launch(b)\n", "l.window.launch(b)\n\t\tl.window.learn(b.slot, entry{rec: b.rec, ours: b})\n", []string{ofReplica, simulated}},
	{"a record that lost its slot counts as stored", "internal/replica/loop.go",
		"case a.Taken:\n", "case a.Taken && l.ctx.Err() != nil:\n", []string{ofReplica, simulated}},
	{"a batch that lost its slot is not written again", "internal/replica/window.go",
		"if !b.filler() { // a filler is done: its slot is filled", "if b.filler() {", []string{ofReplica, simulated}},
	{"a time-out of the store counts as success", "internal/replica/access/access.go",
		"case err == nil:\n\t\t\treturn Appended{}, nil\n\t\tcase errors.Is(err, journal.ErrTaken):", "case err == nil || errors.Is(err, context.DeadlineExceeded):\n\t\t\treturn Appended{}, nil\n\t\tcase errors.Is(err, journal.ErrTaken):", []string{ofAccess, ofReplica, simulated}},
	{"a write of unknown outcome is repeated blindly", "internal/replica/access/access.go",
		"if !unknown {\n", "if unknown || !unknown {\n", []string{ofAccess, ofReplica, simulated}},
	{"a write that is on its way is said not to have been made", "internal/replica/queue.go",
		"if p.withdraw() {\n\t\treturn nil, errors.Join(ErrUnavailable, cause)", "if p.withdraw(); true {\n\t\treturn nil, errors.Join(ErrUnavailable, cause)", []string{ofReplica, simulated}},
	{"a write without an answer is said not to have been made", "internal/replica/batch.go",
		"p.resolve(nil, ErrUnknown)", "p.resolve(nil, ErrUnavailable)", []string{ofReplica, simulated}},
	{"somebody else's record with this writer's ID counts as its own", "internal/replica/window.go",
		"b.kind == h.Kind && bytes.Equal(b.body, body)", "b.kind == h.Kind && (true || bytes.Equal(b.body, body))", []string{ofReplica}},
	{"more batches are in flight than replicas remember", "internal/replica/window.go",
		"if w.number+1-n >= mvcc.BatchWindow {", "if w.number+1-n >= 100*mvcc.BatchWindow {", []string{ofReplica}},

	// Exactly once.
	{"a batch is carried out twice", "internal/mvcc/writers.go",
		"if w.seen[b.Number%BatchWindow/64]&(1<<(b.Number%64)) != 0 {", "if false {", []string{ofState, simulated}},
	{"a batch that comes too late is carried out", "internal/mvcc/writers.go",
		"if b.Number == 0 || b.Number+BatchWindow <= w.max {", "if b.Number == 0 {", []string{ofState}},
	{"writers are remembered for ever", "internal/mvcc/writers.go",
		"if w.last+writerSpan < slot {", "if w.last+writerSpan < slot && false {", []string{ofState}},

	// No fork.
	{"a record of another history is taken", "internal/record/chain.go",
		"case h.AnchorChain != c.ring[h.Anchor%AnchorSpan]:", "case h.AnchorChain != c.ring[h.Anchor%AnchorSpan] && false:", []string{ofRecord, ofReplica}},
	{"a record is taken whose writer had seen more", "internal/record/chain.go",
		"case h.Anchor > c.slot:", "case h.Anchor > c.slot+1<<20:", []string{ofRecord, ofReplica}},
	{"a record of another journal is taken", "internal/record/chain.go",
		"case h.Journal != id:", "case h.Journal != id && h.Anchor == 0:", []string{ofRecord, ofReplica}},
	{"a record's checksum is not looked at", "internal/record/record.go",
		"if crc32.Checksum(b[:end], castagnoli) != binary.LittleEndian.Uint32(b[end:]) {", "if len(b[:end]) < 0 {", []string{ofRecord}},
	{"an empty slot is filled that had been held", "internal/replica/reads.go",
		"if err := l.access.NeverHeld(l.ctx, slot, nearby); err != nil {", "if err := error(nil); err != nil {", []string{ofReplica}},
	{"the journal ends at a slot that had been held, for a server that starts", "internal/replica/reads.go",
		"err = r.access.NeverHeld(ctx, end, r.info.Depth)", "err = nil", []string{ofReplica}},

	// Reads.
	{"a linearizable read is answered from memory", "internal/etcdapi/kv.go",
		"if serializable || s.cfg.SessionReads {", "if serializable || s.cfg.SessionReads || ctx != nil {", []string{ofEtcd}},
	{"a Read answers a question that was asked after it began", "internal/replica/reads.go",
		"f.asked.answer()\n", "f.asked.answer()\n\tl.index.take().answer()\n", []string{ofReplica, simulated}},
	{"a linearizable read is answered before the tail is reached", "internal/replica/reads.go",
		"if r.behind {\n\t\tif f.asked != nil {\n\t\t\tr.asking = f.asked.with(r.asking)\n\t\t}", "if r.behind {\n\t\tf.asked.answer()", []string{ofReplica, simulated}},
	{"answers are given before the state can be read", "internal/replica/apply.go",
		"l.hub.publish(l.state.View(), l.state.ChangesSince(before))\n", "defer l.hub.publish(l.state.View(), l.state.ChangesSince(before))\n", []string{ofReplica, ofEtcd, simulated}},

	// Watches.
	{"progress overtakes events", "internal/etcdapi/watch.go",
		"if err == nil && ws.asked && ws.behind.size == 0 {", "if err == nil && ws.asked {", []string{ofEtcd}},
	{"progress is ahead of a watch that begins later", "internal/etcdapi/watch.go",
		"if w.progress && w.quiet && w.start <= view.Revision() {", "if w.progress && w.quiet {", []string{ofEtcd}},
	{"a revision is split between two answers", "internal/etcdapi/watch.go",
		" || n > 0 && changes[n].KV.Mod == changes[n-1].KV.Mod)", ")", []string{ofEtcd}},
	{"a watch that catches up leaves out a change", "internal/etcdapi/watch.go",
		"upTo = changes[n].KV.Mod - 1", "upTo = changes[n].KV.Mod", []string{ofEtcd}},
	{"a watch sees a change twice", "internal/etcdapi/watch.go",
		"w.next = rev + 1\n\t\tws.live.add(w)", "w.next, w.behind = rev, true\n\t\tws.behind.add(w)", []string{ofEtcd}},
	{"a watch begins before what was compacted, and is not told", "internal/etcdapi/watch.go",
		"if w.next < view.Compacted() {", "if w.next < view.Compacted() && w.next == 0 {", []string{ofEtcd}},
	{"a feed forgets a change that was not taken", "internal/replica/feed.go",
		"if f.first == 0 {\n\t\tf.first = rev", "if f.first = rev; true {", []string{ofReplica, ofEtcd, simulated}},

	// The state.
	{"an old expiry ends a lease that was renewed", "internal/mvcc/state.go",
		"l != nil && l.since == r.Since {", "l != nil {", []string{ofState, ofReplica}},
	{"a key is put under a lease that is not there", "internal/mvcc/state.go",
		"if op.Lease != 0 && s.leases[op.Lease] == nil {", "if op.Lease < 0 {", []string{ofState, ofEtcd}},
	{"a key is put twice in a transaction", "internal/mvcc/state.go",
		"if len(ops) > 1 && changesTwice(ops) {", "if len(ops) < 0 && changesTwice(ops) {", []string{ofState, ofEtcd}},
	{"compaction removes a live key", "internal/mvcc/state.go",
		"if !kv.Live() && s.keys.Root().Get(kv.Key) == kv {", "if s.keys.Root().Get(kv.Key) == kv {", []string{ofState}},
	{"a version is not counted", "internal/mvcc/state.go",
		"kv.Create, kv.Version = prev.Create, prev.Version+1", "kv.Create, kv.Version = prev.Create, prev.Version", []string{ofState}},
	{"a snapshot is taken as it is, whatever its hash", "internal/snapshot/load.go",
		"hex.EncodeToString(out.Hash[:]) != m.Hash {", "hex.EncodeToString(out.Hash[:]) == \"\" {", []string{ofShot, ofReplica}},

	// Leases.
	{"a lease that is granted again keeps its old deadline", "internal/replica/lease/lease.go",
		"case !ok || s.since != since:", "case !ok:", []string{ofLease, ofReplica}},
	{"a lease ends five seconds early", "internal/replica/lease/lease.go",
		"!now.Before(s.deadline.Add(s.standby))", "!now.Before(s.deadline.Add(s.standby - 5*time.Second))", []string{ofLease, ofReplica}},

	// Trimming.
	{"records are deleted although no other server has the snapshot's state", "internal/replica/trim.go",
		"if !ok || !l.agreement.Trusted(oldest.slot, l.alone()) {", "if !ok {", []string{ofReplica}},
	{"records are deleted although the snapshot cannot be read", "internal/replica/trim.go",
		"if err == nil {\n\t\t\t\t// The records", "if err == nil || l.ctx.Err() == nil {\n\t\t\t\t// The records", []string{ofReplica}},

	// A file.
	{"a record is not synced to the disk", "internal/journal/filelog/segment/tail.go",
		"if err := s.file.Sync(); err != nil {\n\t\tt.Suspect = true\n\t\treturn err\n\t}", "", []string{ofSegment, ofFile}},
	{"after a sync that failed, writes go on", "internal/journal/filelog/segment/tail.go",
		"if err := s.file.Sync(); err != nil {\n\t\tt.Suspect = true\n", "if err := s.file.Sync(); err != nil {\n", []string{ofSegment, ofFile}},
	{"a folder is not synced after a file was renamed in it", "internal/journal/filelog/disk/disk.go",
		"return fs.SyncDir(filepath.Dir(path))", "_ = filepath.Dir(path)\n\treturn nil", []string{ofFile}},
	{"a journal is closed without a note of its last slot", "internal/journal/filelog/log.go",
		"return l.writeMeta(l.view.floor, l.view.last())\n}\n", "return nil\n}\n", []string{ofFile}},
	{"the checksum of a stored frame is not looked at", "internal/journal/filelog/segment/frame.go",
		"if f.crc != crc32.Checksum(payload, castagnoli) || ", "if ", []string{ofSegment, ofFile}},

	// A bucket.
	{"a refused PUT counts as another's record, and nobody looks", "internal/journal/objectlog/append.go",
		"if !bucket.Passing(err) && !errors.Is(err, bucket.ErrExists) {", "if errors.Is(err, bucket.ErrExists) {\n\t\t\treturn journal.ErrTaken\n\t\t}\n\t\tif !bucket.Passing(err) {", []string{ofObjects}},
	{"a record counts as stored in a slot that may have been trimmed", "internal/journal/objectlog/append.go",
		"if err := l.floors.vouch(ctx, slot, at, at); err != nil {\n\t\treturn trimmedMeanwhile(err)\n\t}\n\tl.tail.held(slot)\n\treturn nil", "l.tail.held(slot)\n\treturn nil", []string{ofObjects, ofStores}},
	{"a PUT writes over what is there", "internal/journal/s3log/s3bucket/requests.go",
		"\t\tIfNoneMatch: ifNoneMatch,\n", "", []string{ofObjects, ofS3}},
	{"the SDK repeats requests by itself", "internal/journal/s3log/s3bucket/bucket.go",
		"\t\to.Retryer = aws.NopRetryer{} // the caller", "\t\to.RetryMaxAttempts = 3 // the caller", []string{ofObjects, ofS3}},
	{"a machine that slept signs as if it had not", "internal/journal/s3log/s3bucket/bucket.go",
		"o.DisableClockSkewCorrection = true", "o.DisableClockSkewCorrection = false", []string{ofObjects, ofS3}},
	{"what is read may have been trimmed", "internal/journal/objectlog/read.go",
		"look.Wait()\n\tif err == nil {\n\t\terr = l.floors.vouch(ctx, from, oldest, newest)\n\t}", "look.Wait()\n\t_, _ = oldest, newest", []string{ofObjects, ofStores}},
	{"slots are deleted as soon as they are given up", "internal/journal/objectlog/trim.go",
		"min(before, ripe), math.MaxInt)", "max(before, ripe), math.MaxInt)", []string{ofObjects, ofStores}},
	{"records go further ahead of the tail than readers look", "internal/journal/objectlog/append.go",
		"if slot <= depth || slot-depth <= l.tail.known() {", "if slot > 0 {", []string{ofObjects}},

	// A database.
	{"a slot of the database is written over", "internal/journal/sqllog/slots.go",
		"FROM {meta} WHERE floor <= $1::INT8\n\tON CONFLICT (slot) DO NOTHING`", "FROM {meta} WHERE floor <= $1::INT8\n\tON CONFLICT (slot) DO UPDATE SET record = excluded.record`", []string{ofSQL}},
	{"a slot of the database is filled that was trimmed", "internal/journal/sqllog/slots.go",
		"FROM {meta} WHERE floor <= $1::INT8\n\tON CONFLICT", "FROM {meta} WHERE floor <= floor\n\tON CONFLICT", []string{ofSQL}},
	{"statements are not serializable", "internal/journal/sqllog/database.go",
		`"serializable"`, `"read committed"`, []string{ofSQL}},
	{"a slot counts as the tail although one below it is empty", "internal/journal/sqllog/tail.go",
		"for t.above[t.upTo+1] {", "for len(t.above) > 0 {", []string{ofSQL}},
	{"a process that starts takes the journal for whole", "internal/journal/sqllog/slots.go",
		"if count < int64(slot)-max(first, floor)+1 {", "if count < 0 {", []string{ofSQL}},
	{"rows go further ahead of the tail than readers look", "internal/journal/sqllog/slots.go",
		"if !within {", "if !within && slot == 0 {", []string{ofSQL}},
	{"a database that loses writes is taken", "internal/journal/sqllog/open.go",
		"if value != nil && *value == setting.bad {", "if value == nil && setting.bad == \"\" {", []string{ofSQL}},

	// JetStream.
	{"a message is published without a condition", "internal/journal/natslog/slots.go",
		"condition(jetstream.ExpectedLastSeqHeader, uint64(slot-1))", "condition(\"X-\"+jetstream.ExpectedLastSeqHeader, uint64(slot-1))", []string{ofNATS}},
	{"a refused publish counts as another's record, and nobody looks", "internal/journal/natslog/slots.go",
		"case bytes.Equal(stored, rec):\n", "case bytes.Equal(stored, rec) && false:\n", []string{ofNATS}},
	{"a leader that was cut off is believed", "internal/journal/natslog/stream.go",
		"return 2*heard > info.Config.Replicas", "return heard > 0", []string{ofNATS}},
	{"the checksum of a message is not looked at", "internal/journal/frame/frame.go",
		"if binary.LittleEndian.Uint32(frame[magicSize:]) != sum(name, id, payload) {", "if len(payload) < 0 {", []string{ofFrame}},
	{"a server in the same process does not sync", "internal/journal/natslog/embedded/embedded.go",
		"SyncAlways: true,", "SyncAlways: false,", []string{ofNATS + "/embedded"}},

	// Google's and Azure's stores.
	{"an upload to Google writes over what is there", "internal/journal/gcslog/store.go",
		"call = call.IfGenerationMatch(0)", "_ = create", []string{ofGoogle}},
	{"an upload to Azure writes over what is there", "internal/journal/azurelog/store.go",
		"&blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}", "&blob.ModifiedAccessConditions{IfNoneMatch: (*azcore.ETag)(to.Ptr(azcore.ETag(\"\")))}", []string{ofAzure}},

	// Regions: each rule of docs/regions.md, left out.
	{"the membership is read before the operation's record is written", "internal/region/protocol/operation.go",
		"	op.Verb, op.Home = stored.Create, p.here\n	rec, err := p.open(op)\n	if err != nil {\n		return stored.Operation{}, err\n	}\n",
		"	op.Verb, op.Home = stored.Create, p.here\n	early, err := p.membership()\n	if err != nil {\n		return stored.Operation{}, err\n	}\n	rec, err := p.open(op)\n	if err != nil {\n		return stored.Operation{}, err\n	}\n	if rec.State == stored.Pending {\n		claims, err := p.reserve(rec, early)\n		if err != nil {\n			return stored.Operation{}, err\n		}\n		if rec, err = p.commit(rec, early); err != nil {\n			return stored.Operation{}, err\n		}\n		rec, err = p.carryOut(rec, claims)\n		return rec.Operation, err\n	}\n", []string{ofJoins}},
	{"pending operations do not reserve anew when a region joins", "internal/region/protocol/membership.go",
		"if rec.State == stored.Pending && rec.Epoch < m.Epoch {", "if false {", []string{ofJoins}},
	{"the copies of the membership are not raised before claims are copied", "internal/region/protocol/membership.go",
		"	if err := f.push(f.m); err != nil {\n		return err\n	}\n	if err := f.disown", "	if err := f.disown", []string{ofJoins}},
	{"a joining region gets no claims", "internal/region/protocol/membership.go",
		"return f.copyClaims(f.m.Members[i])", "return nil", []string{ofJoins}},
	{"a claim is copied without reading its source again", "internal/region/protocol/membership.go",
		"if again[c.Name()].object.Version != source[c.Name()].object.Version {", "if len(again) > 1000 {", []string{ofJoins}},
	{"committed operations are not finished before their claims are copied", "internal/region/protocol/membership.go",
		"return f.clear(f.m, s, false)\n}\n\n// sweep", "return nil\n}\n\n// sweep", []string{ofJoins}},
	{"a delete keeps no place in a joining region", "internal/region/protocol/delete.go",
		"case !c.member.Active && (c.Phase == \"\" || c.Phase == stored.Copy):\n			marks.add(c, keep)", "case !c.member.Active && (c.Phase == \"\" || c.Phase == stored.Copy):", []string{ofJoins}},
	{"a delete marks a target that is not finished", "internal/region/protocol/delete.go",
		"	case stored.Committed:\n		return p.settle(*target)\n	case stored.Pending, stored.Aborted:", "	case stored.Pending, stored.Aborted:", []string{ofRegions}},
	{"a delete removes whoever owns the key", "internal/region/protocol/delete.go",
		"case ours, c.Owner.Op == rec.Target && (c.Phase == stored.Held || c.Phase == stored.Real):", "case ours, c.Phase == stored.Held, c.Phase == stored.Real:", []string{ofRegions}},
	{"operations of any window are decided", "internal/region/protocol/operation.go",
		"case op.ID.Window != m.Horizon:", "case false:", []string{ofRegions}},
	{"committed operations are collected", "internal/region/protocol/membership.go",
		"		case rec.State == stored.Committed:\n			return p.settle(rec)\n", "", []string{ofRegions}},
	{"records are collected before the horizon is raised", "internal/region/protocol/membership.go",
		"if m.Horizon < before {", "if m.Horizon > before {", []string{ofRegions}},
	{"claims are deleted before all of them are tombs", "internal/region/protocol/delete.go",
		"			tombs.add(c, c.Buried())\n", "", []string{ofRemoval}},
	{"a create is acknowledged before its claims stand", "internal/region/protocol/operation.go",
		"		if rec, err = p.finish(rec); errors.Is(err, errOrphaned) {", "		if rec.State = stored.Done; errors.Is(err, errOrphaned) {", []string{ofRegions}},
	{"a write of a region without an answer counts as made", "internal/region/protocol/pass.go",
		"		if a.Outcome != stored.OK {\n			return nil, refusal(requests[i], a)\n		}\n		objects[i] = a.Object", "		if a.Outcome == stored.Conflict {\n			return nil, refusal(requests[i], a)\n		}\n		objects[i] = a.Object", []string{ofRegions}},
	{"an intent of an earlier attempt is good enough", "internal/region/protocol/create.go",
		"		case c.Owner != want.Owner:\n			raise.add(c, want)\n", "", []string{ofJoins}},
	{"an intent is removed while its operation is pending", "internal/region/protocol/settle.go",
		"return p.displace(*rec, first)", "return p.remove(c)", []string{ofRegions}},
	{"an intent of an operation that is done stays", "internal/region/protocol/settle.go",
		"case c.Phase == stored.Intent:\n		return p.remove(c)", "case c.Phase == stored.Intent && f == void:\n		return p.remove(c)", []string{ofJoins}},
	{"a joining region gets no intents", "internal/region/protocol/create.go",
		"claims, err := p.insert(want, m.Members)", "members := m.Members\n\tif last := len(members) - 1; !members[last].Active {\n\t\tmembers = members[:last]\n\t}\n\tclaims, err := p.insert(want, members)", []string{ofJoins}},
	{"a copy without a source counts as an owner", "internal/region/protocol/create.go",
		"case c.Phase == stored.Copy: // below, once nothing else is in the way\n", "case c.Phase == stored.Copy && false:\n", []string{ofJoins}},
	{"a mark of an aborted delete stays", "internal/region/protocol/settle.go",
		"case c.Phase == stored.Marked && f == void:", "case c.Phase == stored.Marked && f == void && rec == nil:", []string{ofRegions}},
	{"a delete is decided without a mark", "internal/region/protocol/delete.go",
		"	return claims, p.make(marks)", "	return claims, nil", []string{ofRegions}},
	{"a claim is taken on without asking the region whether the home is a member", "internal/region/protocol/operation.go",
		"if p.layout.Central {\n		return nil\n	}\n	var requests", "if true {\n		return nil\n	}\n	var requests", []string{ofRemoval}},
	{"a removed region's committed operations are taken back", "internal/region/protocol/remove.go",
		"held = held || c.Owner.Op == id && (c.Owned() || c.Phase == stored.Tomb)", "held = held && c.Owner.Op == id", []string{ofRemoval}},
	{"a removed region's committed deletes are taken back", "internal/region/protocol/remove.go",
		"buried = buried || c.Phase == stored.Tomb && c.Deleter.Op == id", "buried = buried && c.Deleter.Op == id", []string{ofRemoval}},
	{"the record of a removed region's operation counts", "internal/region/protocol/remove.go",
		"return !p.layout.Central && !m.Covers(s.Home, s.Epoch)", "return false", []string{ofRemoval}},
	{"committed operations of a region that was removed stay when it joins again", "internal/region/protocol/remove.go",
		"rec.Epoch < x.Since {", "false {", []string{ofRemoval}},
	{"clients abort each other, and none gets the key", "internal/region/protocol/create.go",
		"claims[0].Owner.Op == rec.ID)", "true)", []string{ofRegions}},
	{"claims of a region from before it joined stay", "internal/region/protocol/membership.go",
		"if gone || c.Owner.Epoch < c.member.Since {", "if gone {", []string{ofRemoval}},
	{"with a central store, clients read their region's copy of the membership", "internal/region/protocol/pass.go",
		"	if p.layout.Central {\n		_, m, err := p.register()", "	if p.layout.Central && p.here == \"\" {\n		_, m, err := p.register()", []string{ofRemoval}},
	{"clients of a removed region are not told", "internal/region/protocol/operation.go",
		"		return m, ErrRemoved\n", "		return m, ErrAgain\n", []string{ofRemoval}},
	{"regions ignore the versions of writes", "internal/region/explore/step.go",
		"exists && old.version != r.version:", "false:", []string{ofRegions}},
	{"regions take writes at any version of the same operation", "internal/region/explore/step.go",
		"exists && old.version != r.version:", "exists && old.version != r.version && (r.Kind != stored.KindClaim || r.Body == nil || e.catalog.bodies[old.body].(stored.Claim).Owner.Op != r.Body.(stored.Claim).Owner.Op):", []string{ofRegions}},
}
