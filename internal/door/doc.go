// Package door is what an HTTP server has before its handlers, so that no caller
// keeps others out: bounds on connections, shares of what is bounded, and an end
// for bodies and answers that do not get on. It never looks into a request
// beyond its address, and never decides who somebody is.
package door
