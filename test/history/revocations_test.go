package history

import "testing"

// revoke is a revocation of the lease L-a; the server's history has it if the answer
// says that it happened.
func (s *script) revoke(from, to int64, request string, token uint64, outcome string) *Op {
	if outcome == Revoked {
		s.revoked(request, token)
	}
	return s.op(from, to, Op{Verb: Revoke, Lease: "L-a", Request: request, Reason: "because of " + request,
		Answer: Answer{Outcome: outcome, Lease: "L-a", Token: token}})
}

func (s *script) revoked(request string, token uint64) {
	s.event("revoked", "a", request, token)
	s.h.Events[len(s.h.Events)-1].Reason = "because of " + request
}

// TestCheck_revocationsRight has revocations as a service that keeps the law can have
// them.
func TestCheck_revocationsRight(t *testing.T) {
	accepts(t, map[string]func(*script){
		"a revocation while work runs": func(s *script) {
			s.grant(0, 10, "a", 1)
			s.renew(20, 30, Renewed)
			s.revoke(100, 120, "v", 1, Revoked)
			s.grant(105, 110, "b", 2)
			s.renew(115, 140, EndedRevoked)
			s.check(116, 141, 1, StaleToken, "")
			s.release(150, 160, "a", 1, EndedRevoked)
			s.acquire(170, 180, "a", Answer{Outcome: EndedRevoked, Lease: "L-a", Token: 1})
			s.revoke(190, 200, "v", 1, Revoked).Answer.Replayed = true
			s.h.Events = s.h.Events[:len(s.h.Events)-1] // the replay is no event
			s.revoke(210, 220, "w", 1, EndedRevoked)
			s.write(1, "i-a")
			s.write(2, "i-b")
		},
		"a revocation whose answer was lost": func(s *script) {
			s.grant(0, 10, "a", 1)
			s.revoke(20, 0, "v", 1, "")
			s.renew(30, 40, Renewed) // it may happen at any time
			s.revoke(45, 50, "w", 1, Unavailable)
			s.renew(60, 70, EndedRevoked)
			s.revoked("v", 1)
			s.grant(80, 90, "b", 2)
		},
		"a revocation that came too late": func(s *script) {
			s.grant(0, 10, "a", 1)
			s.release(20, 30, "a", 1, Released)
			s.revoke(40, 50, "v", 1, EndedReleased)
			s.revoke(60, 0, "w", 1, "")
			s.grant(70, 80, "b", 2)
			s.check(90, 100, 2, Current, "L-b")
		},
	})
}

// TestCheck_revocationsWrong has some that are wrong in one way each.
func TestCheck_revocationsWrong(t *testing.T) {
	refuses(t, map[string]wrong{
		"told of a revocation that nobody asked for": {"linearisable revocations", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.renew(20, 30, EndedRevoked)
		}},
		"told of a revocation before it was asked for": {"linearisable revocations", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.renew(20, 30, EndedRevoked)
			s.revoke(40, 50, "v", 1, Revoked)
		}},
		"revoked, and nobody asked for it": {"revocations", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.revoked("v", 1)
		}},
		"revoked by what was certainly not applied": {"revocations", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.revoke(20, 30, "v", 1, Unavailable)
			s.revoked("v", 1)
		}},
		"revoked for another reason": {"revocations", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.revoke(20, 30, "v", 1, Revoked).Reason = "another"
		}},
		"revoked by two": {"granted-once", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.revoke(20, 30, "v", 1, Revoked)
			s.revoke(40, 50, "w", 1, Revoked)
		}},
		"two told that they revoked it": {"revocations", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.revoke(20, 30, "v", 1, Revoked)
			s.revoke(40, 50, "w", 1, Revoked)
			s.h.Events = s.h.Events[:2]
		}},
		"told that it was revoked, and the server does not know": {"revocations", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.revoke(20, 30, "v", 1, Revoked)
			s.h.Events = s.h.Events[:1]
		}},
		"a revoked lease renewed": {"linearisable revocations", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.revoke(20, 30, "v", 1, Revoked)
			s.renew(40, 50, Renewed)
		}},
		"a revoked lease told to be held": {"linearisable revocations", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.revoke(20, 30, "v", 1, Revoked)
			s.acquire(40, 50, "a", replayed(acquired("a", 1), 950))
			s.check(60, 70, 1, Current, "L-a")
		}},
		"granted before a revocation": {"exclusive linearisable", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.grant(20, 30, "b", 2)
			s.revoke(40, 50, "v", 1, Revoked)
		}},
		"a token that falls after a revocation": {"linearisable tokens-rise", func(s *script) {
			s.grant(0, 10, "a", 2)
			s.revoke(20, 30, "v", 2, Revoked)
			s.grant(40, 50, "b", 1)
		}},
	})
}
