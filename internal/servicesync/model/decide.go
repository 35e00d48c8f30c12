package model

// Decide returns what to write about one Service: what this cluster should hold of
// other clusters' endpoints, what it should publish, and the next step of a change of
// its role.
//
// Call it again after every change of anything that the Input is made of, and at
// Result.Again. The order of calls does not matter, nor do repeated calls, nor an
// Input that is older than that of the last call: a write that is out of date fails
// on its precondition.
func Decide(cfg Config, in Input) Result {
	seen := look(cfg, in)
	if !seen.shared {
		next := unchanged(seen)
		return planPublications(seen, next, publish(seen, next, answer(seen, aim{}, next)))
	}
	aim := aimOf(seen)
	next := step(seen, aim, replicate(seen))
	use := rotate(seen, aim, next)
	pub := publish(seen, next, answer(seen, aim, next))
	return planAll(seen, aim, next, use, pub)
}
