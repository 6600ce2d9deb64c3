package history

import "fmt"

// fenced wants the tokens that the register accepted never to fall, each to be one
// holder's, and what it accepted to be what it said: every write that it told to be
// accepted stands there, none that it did not, and it refused none without a newer token.
func (h *History) fenced() []Violation {
	var bad []Violation
	high := map[string]Written{}
	for _, w := range h.Writes {
		before, seen := high[w.Key]
		switch {
		case seen && w.Token < before.Token:
			bad = append(bad, Violation{Rule: Fenced, Key: w.Key, Says: fmt.Sprintf("the register accepted token %d after token %d", w.Token, before.Token)})
			continue
		case seen && w.Token == before.Token && w.Instance != before.Instance:
			bad = append(bad, Violation{Rule: Fenced, Key: w.Key, Says: fmt.Sprintf("token %d is that of %s and of %s", w.Token, before.Instance, w.Instance)})
		}
		high[w.Key] = w
	}
	return append(bad, h.written()...)
}

// written compares what clients were told of their writes with what the register has.
func (h *History) written() []Violation {
	var bad []Violation
	told, may, stands := map[Written]int{}, map[Written]int{}, map[Written]int{}
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.Verb != Write {
			continue
		}
		w := Written{Key: o.Key, Token: o.Token, Instance: o.Instance}
		switch {
		case o.unknown():
			may[w]++
		case o.Answer.Outcome == Accepted:
			told[w]++
		case o.Answer.Outcome == StaleToken && !h.newerWritten(o):
			bad = append(bad, Violation{Rule: Fenced, Key: o.Key, AtNS: o.CalledNS, Says: fmt.Sprintf(
				"%s was refused with token %d as stale, and nobody had written with a newer one", o.ID, o.Token)})
		}
	}
	for _, w := range h.Writes {
		stands[w]++
	}
	differs := func(w Written) {
		n := stands[w]
		if least, most := told[w], told[w]+may[w]; n < least || n > most {
			bad = append(bad, Violation{Rule: Fenced, Key: w.Key, Says: fmt.Sprintf(
				"the register has %d writes of %s with token %d, and told of %d, at most %d", n, w.Instance, w.Token, least, most)})
		}
	}
	for w := range stands {
		differs(w)
	}
	for w := range told {
		if stands[w] == 0 {
			differs(w)
		}
	}
	return bad
}

// newerWritten tells that a write with a newer token can have come before the answer.
func (h *History) newerWritten(o *Op) bool {
	for i := range h.Ops {
		n := &h.Ops[i]
		if n.Verb == Write && n.Key == o.Key && n.Token > o.Token && n.CalledNS < o.ReturnedNS && (n.unknown() || n.Answer.Outcome == Accepted) {
			return true
		}
	}
	return false
}
