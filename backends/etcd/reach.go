package etcd

import "log/slog"

// reach says when etcd begins and when it ceases to serve, and why: each once,
// however often it was looked for. Only one goroutine uses it.
type reach struct {
	log  *slog.Logger
	told bool // anything yet
	up   bool // as it was told last
}

// note takes how a look went.
func (r *reach) note(fail *failure) {
	switch up := fail == nil; {
	case r.told && up == r.up:
		return
	case !up:
		r.log.Warn("etcd: cannot be reached or does not serve; its namespaces are unavailable until it does", "error", fail)
	case r.told:
		r.log.Info("etcd: serves again")
	default:
		r.log.Info("etcd: connected")
	}
	r.told, r.up = true, fail == nil
}
