package model

// Decide says what to write about one Service: what its cluster should hold of
// other clusters' endpoints, what it should publish, and how a migration goes on.
//
// It is called again after every change of what the Input is made of, and at
// Result.Again. The order of calls does not matter, nor do doubles, nor an
// Input that is older than the last one: a write that is out of date fails on
// its precondition.
func Decide(cfg Config, in Input) Result {
	d := &decision{cfg: cfg, in: in}
	d.admit()
	d.look()
	if d.inScope {
		d.aimAt()
		d.replicate()
		d.step()
		d.rotate()
	}
	d.answerAll()
	d.publish()
	return d.plan()
}
