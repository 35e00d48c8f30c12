// Package sim runs several servers on one journal that goes wrong in every way
// that a store, a network and a machine do, and holds what clients and watchers
// were told against the history that is left. It never ships: it holds tests only.
package sim
