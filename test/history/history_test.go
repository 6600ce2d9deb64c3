package history

import (
	"slices"
	"testing"
)

// TestCheck_right has histories that a service which keeps the law can have.
func TestCheck_right(t *testing.T) {
	accepts(t, map[string]func(*script){
		"nothing": func(*script) {},
		"one after the other": func(s *script) {
			s.grant(0, 10, "a", 1)
			s.renew(100, 110, Renewed)
			s.check(120, 130, 1, Current, "L-a")
			s.conflict(140, 150, "b", "a")
			s.release(200, 210, "a", 1, Released)
			s.check(220, 230, 1, EndedReleased, "")
			s.grant(300, 310, "c", 2)
			s.check(320, 330, 1, StaleToken, "")
			s.release(340, 350, "a", 1, Released).Answer.Replayed = true
			s.h.Events = s.h.Events[:len(s.h.Events)-1] // the replay is no event
			s.write(1, "i-a")
			s.write(1, "i-a")
			s.write(2, "i-c")
			s.tryWrite(1, "i-a", StaleToken)
			s.tryWrite(2, "i-c", NotSent)
		},
		"a write whose answer was lost": func(s *script) {
			s.tryWrite(1, "i-a", Lost)
			s.tryWrite(2, "i-b", Lost)
			s.h.Writes = append(s.h.Writes, Written{Key: "k", Token: 2, Instance: "i-b"})
			s.tryWrite(1, "i-a", StaleToken)
		},
		"the latter is answered first": func(s *script) {
			s.grant(0, 100, "a", 1)
			s.conflict(10, 20, "b", "a")
			s.release(200, 300, "a", 1, Released)
			s.grant(210, 220, "c", 2)
		},
		"expiry, at the earliest and late": func(s *script) {
			s.grant(0, 10, "a", 1)
			s.grant(990, 1000, "b", 2)
			s.renew(1020, 1030, EndedExpired)
			s.conflict(2249, 2260, "c", "b")
			s.check(2300, 2310, 2, EndedExpired, "")
		},
		"a wait is granted at the release": func(s *script) {
			s.grant(0, 10, "a", 1)
			s.grant(20, 510, "b", 2).WaitMS = 1000
			s.release(500, 505, "a", 1, Released)
			s.conflict(1480, 1490, "c", "b") // its TTL began at the release
		},
		"an answer was lost, and came with the repetition": func(s *script) {
			s.acquire(0, 0, "a", Answer{})
			s.event("acquired", "a", "a", 1)
			s.acquire(50, 60, "a", replayed(acquired("a", 1), 990))
			s.renew(100, 200, Lost)
			s.release(300, 310, "a", 1, Lost)
			s.event("released", "a", "release-a", 1)
			s.grant(320, 330, "b", 2)
			s.release(340, 350, "a", 1, Released).Answer.Replayed = true
			s.h.Events = slices.Delete(s.h.Events, 3, 4)
		},
		"a lost grant nobody heard of again": func(s *script) {
			s.acquire(0, 10, "a", Answer{Outcome: Unknown})
			s.event("acquired", "a", "a", 1)
			s.conflict(20, 30, "b", "a")
			s.grant(1005, 1010, "c", 2)
		},
		"unknown, and not applied": func(s *script) {
			s.acquire(0, 10, "a", Answer{Outcome: Unknown})
			s.acquire(20, 30, "b", Answer{Outcome: Unavailable})
			s.grant(40, 50, "b", 1)
			s.release(60, 0, "b", 1, "")
			s.conflict(70, 80, "c", "b")
		},
		"a grant that crossed the end of its wait is undone": func(s *script) {
			s.grant(0, 10, "a", 1)
			s.release(190, 200, "a", 1, Released)
			s.acquire(20, 220, "b", Answer{Outcome: Conflict}).WaitMS = 200
			s.event("acquired", "b", "b", 2)
			s.event("released", "b", "b", 2)
			s.grant(230, 240, "c", 3)
		},
		"a node asks the next leader again for who waits": func(s *script) {
			s.grant(0, 100, "a", 1).WaitMS = 500
			s.h.Ops[0].Answer.Replayed = true
		},
		"a grant is undone while a node asks the next leader again": func(s *script) {
			s.event("acquired", "lost", "a", 1)
			s.event("released", "lost", "a", 1)
			s.grant(0, 400, "a", 2).WaitMS = 500
			s.conflict(410, 420, "b", "a")
		},
		"each of two copies takes the other for the first": func(s *script) {
			s.grant(0, 100, "a", 1).Answer.Replayed = true
			s.acquire(50, 120, "a", replayed(acquired("a", 1), 990))
		},
		"a gateway stands still for longer than what it was granted": func(s *script) {
			s.grant(0, 10, "a", 1)
			s.release(190, 200, "a", 1, Released)
			s.event("acquired", "b", "b", 2)
			s.event("expired", "b", "", 2)
			s.acquire(20, 1300, "b", Answer{Outcome: Conflict, Holder: "i-c"}).WaitMS = 500
			s.grant(1210, 1220, "c", 3)
		},
		"a gateway that closes crosses a grant too": func(s *script) {
			s.grant(0, 10, "a", 1)
			s.release(190, 200, "a", 1, Released)
			s.acquire(20, 220, "b", Answer{Outcome: Closed}).WaitMS = 500
			s.acquire(230, 240, "b", Answer{Outcome: Lost}).WaitMS = 500
			s.event("acquired", "b", "b", 2)
			s.event("released", "b", "b", 2)
			s.conflict(225, 235, "c", "b")
			s.grant(250, 260, "d", 3)
		},
		"another payload is refused": func(s *script) {
			s.grant(0, 10, "a", 1)
			s.acquire(20, 30, "a", Answer{Outcome: Reused}).Job = "other"
			s.release(40, 50, "a", 1+7, StaleToken)
			s.acquire(60, 70, "a", replayed(acquired("a", 1), 930))
		},
		"a fault lets a lease last": func(s *script) {
			s.grant(0, 10, "a", 1)
			s.h.Faults = []Fault{{Name: "pause", FromNS: 100 * millisecond, ToNS: 900 * millisecond}}
			s.conflict(2500, 2510, "b", "a") // 1010 + 250 + 800 + 500
		},
		"a renewal without an answer lets a lease last": func(s *script) {
			s.grant(0, 10, "a", 1)
			s.renew(500, 0, "")
			s.conflict(1499, 1510, "b", "a")
		},
	})
}

// TestCheck_wrong has histories that are each wrong in one way, and wants the rule
// for it to say so.
func TestCheck_wrong(t *testing.T) {
	refuses(t, map[string]wrong{
		"granted while held": {"exclusive linearisable", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.grant(500, 510, "b", 2)
		}},
		"ended 20 ms early": {"exclusive linearisable", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.grant(970, 980, "b", 2)
		}},
		"told to have expired early": {"linearisable", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.check(900, 910, 1, EndedExpired, "")
		}},
		"a holder told to have expired early": {"exclusive linearisable", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.renew(970, 980, EndedExpired)
		}},
		"a renewal that did not last": {"exclusive linearisable", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.renew(500, 510, Renewed)
			s.grant(1200, 1210, "b", 2)
		}},
		"an ended lease renewed": {"linearisable", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.release(20, 30, "a", 1, Released)
			s.renew(40, 50, Renewed)
		}},
		"a stale read": {"linearisable", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.release(20, 30, "a", 1, Released)
			s.check(40, 50, 1, Current, "L-a")
		}},
		"a conflict with who had it before": {"linearisable", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.release(20, 30, "a", 1, Released)
			s.grant(40, 50, "b", 2)
			s.conflict(60, 70, "c", "a")
		}},
		"a conflict over a free key": {"linearisable", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.release(20, 30, "a", 1, Released)
			s.conflict(40, 50, "b", "a")
		}},
		"a lost release that did nothing, and was then done": {"linearisable", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.release(20, 30, "a", 1, Lost)
			s.event("released", "a", "release-a", 1)
			s.check(40, 50, 1, EndedReleased, "")
			s.conflict(60, 70, "b", "a")
		}},
		"a lease forgotten": {"linearisable", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.renew(20, 30, NotFound)
		}},
		"a token that falls": {"linearisable tokens-rise", func(s *script) {
			s.grant(0, 10, "a", 2)
			s.release(20, 30, "a", 2, Released)
			s.grant(40, 50, "b", 1)
		}},
		"a token twice": {"linearisable tokens-rise", func(s *script) {
			s.grant(0, 10, "a", 2)
			s.release(20, 30, "a", 2, Released)
			s.grant(40, 50, "b", 2)
		}},
		"a grant that the server does not know": {"granted-once", func(s *script) {
			s.acquire(0, 10, "a", acquired("a", 1))
		}},
		"a grant that happened twice": {"granted-once", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.event("acquired", "a", "a", 1)
		}},
		"a release that nobody asked for": {"granted-once", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.event("released", "a", "x", 1)
		}},
		"a release that the server does not know": {"granted-once", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.release(20, 30, "a", 1, Released)
			s.h.Events = s.h.Events[:1]
		}},
		"unavailable, and granted": {"not-applied", func(s *script) {
			s.acquire(0, 10, "a", Answer{Outcome: Unavailable})
			s.event("acquired", "a", "a", 1)
		}},
		"timeout, and granted": {"not-applied", func(s *script) {
			s.acquire(0, 10, "a", Answer{Outcome: Timeout})
			s.acquire(20, 30, "a", Answer{Outcome: NotSent})
			s.event("acquired", "a", "a", 1)
		}},
		"unavailable, and then told again": {"not-applied", func(s *script) {
			s.acquire(0, 10, "a", Answer{Outcome: Unavailable})
			s.grant(20, 30, "a", 1).Answer.Replayed = true
		}},
		"granted twice without a wait": {"linearisable not-applied", func(s *script) {
			s.event("acquired", "lost", "a", 1)
			s.event("released", "lost", "a", 1)
			s.grant(0, 400, "a", 2)
		}},
		"a wait that is told a conflict with itself": {"linearisable not-applied", func(s *script) {
			s.event("acquired", "a", "a", 1)
			s.event("expired", "a", "", 1)
			s.acquire(0, 500, "a", Answer{Outcome: Conflict, Holder: "i-a"}).WaitMS = 500
		}},
		"closed without a wait, and granted": {"linearisable not-applied", func(s *script) {
			s.acquire(0, 10, "a", Answer{Outcome: Closed})
			s.event("acquired", "a", "a", 1)
			s.event("released", "a", "a", 1)
		}},
		"a conflict, and granted": {"not-applied", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.conflict(20, 30, "b", "a")
			s.event("acquired", "b", "b", 2)
			s.release(40, 50, "a", 1, Released)
		}},
		"held for too long": {"on-time", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.conflict(1261, 1270, "b", "a")
		}},
		"held for too long, though there was a fault": {"on-time", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.h.Faults = []Fault{{Name: "pause", FromNS: 100 * millisecond, ToNS: 900 * millisecond}}
			s.check(2561, 2570, 1, Current, "L-a")
		}},
		"held for too long, though a clock stepped": {"on-time", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.h.Faults = []Fault{{Name: "clock", FromNS: 100 * millisecond, ToNS: 900 * millisecond, Harmless: true}}
			s.check(1261, 1270, 1, Current, "L-a")
		}},
		"released with another token": {"compared granted-once", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.release(20, 30, "a", 1, Released).Token = 7
		}},
		"refused with its own token": {"compared", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.renew(20, 30, StaleToken)
		}},
		"a repetition granted anew": {"request-ids", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.release(20, 30, "a", 1, Released)
			s.grant(40, 50, "a", 2).Answer.Lease = "L-b"
			s.h.Events[2].Lease = "L-b"
		}},
		"a repetition told a conflict": {"request-ids", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.release(20, 30, "a", 1, Released)
			s.grant(40, 50, "b", 2)
			s.conflict(60, 70, "a", "b")
		}},
		"another payload granted": {"request-ids", func(s *script) {
			s.grant(0, 10, "a", 1)
			s.acquire(20, 30, "a", replayed(acquired("a", 1), 970)).Job = "other"
		}},
		"an older token written": {"fenced", func(s *script) {
			s.write(2, "i-b")
			s.write(1, "i-a")
		}},
		"one token of two": {"fenced", func(s *script) {
			s.write(1, "i-a")
			s.write(1, "i-b")
		}},
		"a write that is not there": {"fenced", func(s *script) {
			s.write(1, "i-a")
			s.h.Writes = nil
		}},
		"a write twice": {"fenced", func(s *script) {
			s.write(1, "i-a")
			s.h.Writes = append(s.h.Writes, s.h.Writes[0])
		}},
		"a write that was refused, and is there": {"fenced", func(s *script) {
			s.write(2, "i-b")
			s.tryWrite(2, "i-c", NotSent)
			s.h.Writes[0].Instance = "i-c"
		}},
		"the newest token refused": {"fenced", func(s *script) {
			s.write(2, "i-b")
			s.tryWrite(2, "i-b", StaleToken)
		}},
		"refused before there was a newer token": {"fenced", func(s *script) {
			s.tryWrite(1, "i-a", StaleToken)
			s.write(2, "i-b")
			s.h.Ops[1].CalledNS, s.h.Ops[1].ReturnedNS = 3*millisecond, 4*millisecond
		}},
		"an internal error": {"no-defect", func(s *script) {
			s.acquire(0, 10, "a", Answer{Outcome: Internal})
		}},
	})
}

// TestCheck_loses: of a service that may lose what it acknowledged nothing is held
// but that tokens rise, that it does what it says, and that the register is fenced.
func TestCheck_loses(t *testing.T) {
	p := promise()
	p.Loses = true
	var s script
	s.grant(0, 10, "a", 1)
	s.grant(20, 30, "b", 2)
	s.renew(40, 50, NotFound)
	s.h.Events = nil
	for _, v := range s.h.Check(p) {
		t.Error(v)
	}
	s.grant(60, 70, "c", 1)
	s.write(2, "i-b")
	s.write(1, "i-a")
	if got := s.h.Check(p); len(got) != 3 || got[0].Rule != TokensRise || got[2].Rule != Fenced {
		t.Errorf("violations are %v, want that a token falls and is that of two, and that an older one was written", got)
	}
}
