package contracttest_test

import (
	"slices"
	"time"

	"leased/contract"
)

// brokenStores lists every wrong store with the rules that catch it. A rule that
// stands nowhere here may be one that cannot fail.
func brokenStores() []brokenStore {
	return slices.Concat(brokenGrants(), brokenHolders(), brokenTokens(), brokenAnswers(), brokenQueues(), brokenReads(), brokenEvents(), brokenHandles())
}

func brokenGrants() []brokenStore {
	return []brokenStore{
		{"two winners", []string{"acquire-one-winner", "mutual-exclusion", "acquire-conflict-shows-holder"}, inside(twoWinners)},
		{"re-entrant", []string{"acquire-not-reentrant"}, inside(reentrant)},
		{"lease id can be guessed", []string{"acquire-lease-id-new"}, inside(guessableLeaseID)},
		{"job of a lease lost", []string{"acquire-grant-complete"}, inside(jobLost)},
		{"TTL rounded down", []string{"acquire-ttl-rounded-up"}, inside(ttlRoundedDown)},
		{"early expiry", []string{"expiry-never-early"}, inside(lifeOff(aTenthEarly))},
		{"late expiry", []string{"expiry-in-slack", "expiry-frees-key"}, inside(lifeOff(twiceAsLong))},
		{"conflict hides the queue", []string{"acquire-conflict-shows-holder", "wait-queue-length"}, inside(conflictHidesQueue)},
		{"metadata cut to fit", []string{"acquire-metadata-limits"}, around(plain(func(s contract.Store) contract.Store { return metadataCut{s} }))},
		{"quota of leases ignored", []string{"acquire-quota-leases", "acquire-quota-exact", "wait-lease-quota"}, inside(quotaIgnored)},
		{"keys joined without escaping", []string{"keys-independent"}, inside(likeKeys)},
		{"namespaces mixed", []string{"namespaces-independent"}, inside(namespacesMixed)},
		{"namespaces listed by prefix", []string{"namespaces-listed-apart"}, inside(listByPrefix)},
		{"TTL missing is a default", []string{"invalid-acquire"}, around(plain(func(s contract.Store) contract.Store { return ttlDefaulted{s} }))},
		{"key mended", []string{"invalid-key"}, around(plain(func(s contract.Store) contract.Store { return keyMended{s} }))},
	}
}

func brokenHolders() []brokenStore {
	return []brokenStore{
		{"renew revives", []string{"renew-never-revives", "renew-races-expiry"}, inside(renewRevives)},
		{"renew changes the token", []string{"renew-extends"}, inside(renewChangesToken)},
		{"renewals not counted", []string{"renew-extends", "history-counts-renewals"}, inside(renewalsUncounted)},
		{"renew compares the owner alone", []string{"renew-compares-all"}, inside(renewByOwnerAlone)},
		{"renew never shortens", []string{"renew-ttl"}, inside(renewNeverShortens)},
		{"renew adds up", []string{"expiry-counts-from-renewal"}, inside(renewAddsUp)},
		{"renew yields to waiters", []string{"renew-while-others-wait"}, inside(renewYieldsToWaiters)},
		{"maximum lifetime ignored", []string{"renew-max-lifetime"}, inside(endlessLifetime)},
		{"bulk renewal stops at a refusal", []string{"bulk-renews-each"}, inside(bulkStops)},
		{"bulk renewal in no order", []string{"bulk-of-one-key"}, around(plain(func(s contract.Store) contract.Store { return bulkBackwards{s} }))},
		{"bulk renewal without bounds", []string{"bulk-bounds"}, around(plain(func(s contract.Store) contract.Store { return bulkUnbounded{s} }))},
		{"bulk renewal checked on the way", []string{"bulk-invalid"}, around(plain(func(s contract.Store) contract.Store { return bulkCheckedOnTheWay{s} }))},
		{"release without compare", []string{"release-compares-all"}, inside(releaseWithoutCompare)},
		{"release compares no token", []string{"release-compares-all"}, inside(releaseWithoutToken)},
		{"release ends a newer lease", []string{"release-never-ends-newer", "release-races-reacquire"}, inside(releaseEndsNewer)},
		{"release does nothing", []string{"release-ends"}, inside(releaseDoesNothing)},
		{"release of an ended lease succeeds", []string{"release-of-ended"}, inside(releaseOfEndedSucceeds)},
		{"no token is any token", []string{"invalid-holder-calls", "invalid-reads"}, around(plain(func(s contract.Store) contract.Store { return noTokenMatches{s} }))},
		{"check takes a higher token", []string{"check-stale"}, inside(checkTakesHigher)},
		{"check ignores the end", []string{"check-ended"}, inside(checkIgnoresEnd)},
		{"check of an unknown key is stale", []string{"check-unknown-key"}, inside(checkUnknownStale)},
		{"check compares with the first grant", []string{"check-stale", "token-compared-as-number"}, inside(checkOfFirstGrant)},
		{"revoke touches a newer lease", []string{"revoke-names-the-lease", "revoke-unknown"}, inside(revokeTouchesNewer)},
		{"revoke loses the reason", []string{"revoke-ends"}, inside(revokeLosesReason)},
		{"revoked lease forgotten", []string{"revoke-told-to-holder"}, inside(revokedForgotten)},
	}
}

func brokenTokens() []brokenStore {
	return []brokenStore{
		{"token does not rise", []string{"token-rises"}, inside(tokenPerKey)},
		{"token is the owner's", []string{"token-rises", "expiry-frees-key"}, inside(tokenOfOwner)},
		{"token forgotten with the key", []string{"token-rises-when-forgotten"}, inside(tokenForgotten)},
		{"token is the instant", []string{"token-rises-in-races"}, inside(tokenOfInstant)},
		{"tokens compared as text", []string{"token-compared-as-number"}, inside(tokenComparedAsText)},
		{"token loses digits", []string{"token-exact"}, inside(tokenRounded)},
		{"token wraps at the limit", []string{"token-limit-refused"}, inside(tokenWraps)},
		{"token falls after a restart", []string{"reopen-tokens-rise"}, inside(tokenFallsAtRestart)},
		{"floor ignored", []string{"floor-raises"}, inside(floorIgnored)},
		{"floor lowered", []string{"floor-never-lowers"}, inside(floorLowered)},
		{"floor forgotten at a restart", []string{"reopen-tokens-rise"}, inside(floorForgotten)},
		{"floor of all namespaces", []string{"floor-of-one-namespace"}, inside(floorForAll)},
	}
}

func brokenAnswers() []brokenStore {
	return []brokenStore{
		{"replay grants again", []string{"replay-acquire-ended"}, inside(replayGrantsAgain)},
		{"replay of ended reads as live", []string{"replay-acquire-ended"}, inside(replayReadsAsLive)},
		{"replay waits for itself", []string{"replay-acquire-never-waits", "replay-served-waiter"}, inside(replayWaitsForItself)},
		{"replay starts the TTL again", []string{"replay-acquire"}, inside(replayStartsTTLAgain)},
		{"replay not marked", []string{"replay-acquire", "copies-of-acquire"}, inside(replayUnmarked)},
		{"replay is the first answer for ever", []string{"replay-acquire-after-renew"}, inside(firstAnswerForever)},
		{"renewal done again", []string{"replay-renew", "copies-of-renew", "bulk-replayed-each"}, inside(mutationsNotReplayed(contract.VerbRenew))},
		{"release done again", []string{"replay-release", "copies-of-release"}, inside(mutationsNotReplayed(contract.VerbRelease))},
		{"revocation done again", []string{"replay-revoke", "copies-of-revoke"}, inside(mutationsNotReplayed(contract.VerbRevoke))},
		{"renewal of ended replayed as live", []string{"replay-renew-ended"}, inside(renewReplayReadsAsLive)},
		{"loser of copies is told unavailable", []string{"copies-of-acquire"}, inside(loserUnavailable)},
		{"loser of copies is told of a conflict", []string{"copies-of-acquire-contested"}, inside(loserConflicts)},
		{"reused id accepted", []string{"request-id-reused", "wait-reused-id"}, inside(reusedIDAccepted)},
		{"instance left out of the comparison", []string{"request-id-reused"}, inside(fingerprintForgets(func(r *contract.AcquireRequest) { r.Instance = "" }))},
		{"metadata left out of the comparison", []string{"request-id-reused"}, inside(fingerprintForgets(func(r *contract.AcquireRequest) { r.Metadata = nil }))},
		{"id free after the end", []string{"request-id-reused-after-end"}, inside(idFreeAfterEnd)},
		{"wait makes another request", []string{"request-id-ignores-circumstances"}, inside(waitMakesAnother)},
		{"request ids shared between owners", []string{"request-id-scopes"}, inside(idsSharedBetweenOwners)},
		{"refusals stored", []string{"refusal-not-stored"}, inside(refusalsStored)},
		{"answers forgotten early", []string{"replay-retained"}, inside(answersForgottenEarly)},
		{"answers kept as the grant's", []string{"replay-retained-each"}, inside(answersKeptAsTheGrants)},
		{"answers die with the history", []string{"replay-outlives-history"}, inside(answersDieWithHistory)},
		{"answers lost at a restart", []string{"reopen-keeps-answers"}, inside(answersLostAtRestart)},
		{"leases lost at a restart", []string{"reopen-keeps-leases"}, inside(leasesLost(1))},
		{"leases lost at the fourth restart", []string{"reopen-again"}, inside(leasesLost(4))},
		{"counts doubled by a restart", []string{"reopen-keeps-counts"}, inside(countsDoubled)},
		{"cursors forgotten at a restart", []string{"reopen-keeps-cursors"}, inside(cursorsForgotten)},
		{"restart takes an hour of every life", []string{"reopen-never-early"}, inside(restartTakesAnHour)},
		{"restart stops the clock", []string{"reopen-never-early"}, inside(restartStopsTheClock)},
	}
}

func brokenQueues() []brokenStore {
	return []brokenStore{
		{"last come first served", []string{"wait-fifo"}, inside(serves(lastCome))},
		{"cancelled waiter granted", []string{"wait-cancelled-skipped", "wait-all-away", "wait-cancelled-at-turn"}, withGhosts(cancelled)},
		{"granted after no", []string{"wait-no-grant-after-no", "wait-no-grant-after-deadline"}, withGhosts(told)},
		{"grant to a cancelled waiter not undone", []string{"wait-no-grant-after-cancel"}, inside(notUndone)},
		{"waiters told closed before they leave", []string{"wait-closed-at-turn"}, around(plain(func(s contract.Store) contract.Store { return &closedEarly{Store: s, closing: make(chan struct{})} }))},
		{"dead handle goes on waiting", []string{"wait-killed-skipped"}, around(deadHandleWaits)},
		{"place lost on return", []string{"wait-place-kept", "wait-place-outlives-gateway"}, inside(placeLost(leaves))},
		{"places lost at a restart", []string{"reopen-keeps-places"}, inside(placeLost(restarts))},
		{"place kept past its turn", []string{"wait-place-lost"}, inside(firstEverCome)},
		{"only the first copy served", []string{"wait-copies-share-grant"}, inside(onlyFirstCopyServed)},
		{"one copy takes the place away", []string{"wait-copy-leaving", "wait-copies-leave-apart"}, inside(copyTakesPlaceAway)},
		{"copies counted as waiters", []string{"wait-queue-length"}, inside(copiesCounted)},
		{"waiters that are away counted", []string{"wait-cancelled-skipped"}, inside(queueCountsAway)},
		{"position hidden", []string{"wait-copy-without-wait"}, inside(positionHidden)},
		{"waiters unlimited", []string{"wait-quota"}, inside(waitersUnlimited)},
		{"a newcomer takes the room of all", []string{"wait-quota-room"}, inside(roomOfAll)},
		{"waiters never fewer", []string{"wait-quota-lowered"}, inside(waitersNeverFewer)},
		{"everybody woken", []string{"wait-independent"}, inside(wakesEverybody)},
		{"expiry serves nobody", []string{"wait-served-however-ended"}, inside(expiryServesNobody)},
		{"waiters overtaken", []string{"wait-no-barging", "wait-no-barging-at-expiry"}, inside(overtaken)},
		{"TTL counts from the start of the wait", []string{"ttl-starts-at-grant"}, inside(ttlFromEnqueue)},
		{"waits for a free key", []string{"wait-free-key"}, inside(waitsForFreeKey)},
		{"wait overruns", []string{"wait-ends-with-conflict"}, around(plain(func(s contract.Store) contract.Store { return waitOverruns{s} }))},
		{"deadline outwaited", []string{"wait-ends-with-deadline"}, around(plain(func(s contract.Store) contract.Store { return deadlineOutwaited{s} }))},
		{"waiters answered in turn", []string{"wait-ends-bounded-for-many"}, around(answersInTurn)},
		{"no default deadline", []string{"deadline-defaulted"}, around(plain(func(s contract.Store) contract.Store { return noDefaultDeadline{s} }))},
		{"sent though too late", []string{"deadline-ended-not-applied"}, around(plain(func(s contract.Store) contract.Store { return lateSubmitted{s} }))},
		{"errors say nothing of the write", []string{"deadline-ended-not-applied"}, around(plain(func(s contract.Store) contract.Store { return errorsUntyped{s} }))},
	}
}

func brokenReads() []brokenStore {
	return []brokenStore{
		{"reads lag behind", []string{"reads-follow-writes", "check-current"}, inside(readsBehind)},
		{"reads of two replicas", []string{"reads-never-go-back"}, inside(readsOfTwoReplicas)},
		{"list shows ended", []string{"list-active-only"}, inside(listShowsEnded)},
		{"list repeats a lease", []string{"list-pages", "list-stable-under-change"}, inside(listRepeatsALease)},
		{"list misses a lease", []string{"list-pages", "list-stable-under-change"}, inside(listMissesALease)},
		{"list by position", []string{"list-stable-under-change"}, inside(listByPosition)},
		{"filter as pattern", []string{"list-filters-literal"}, inside(filterAsPattern)},
		{"filter by job ignored", []string{"list-filters-combined"}, inside(filterIgnored(func(r *contract.ListRequest) { r.JobID = "" }))},
		{"filter by expiry ignored", []string{"list-expires-before"}, inside(filterIgnored(func(r *contract.ListRequest) { r.ExpiresBefore = time.Time{} }))},
		{"filter by expiry takes its bound in", []string{"list-expires-before"}, inside(filterIgnored(func(r *contract.ListRequest) {
			if !r.ExpiresBefore.IsZero() {
				r.ExpiresBefore = r.ExpiresBefore.Add(time.Nanosecond)
			}
		}))},
		{"ended lease forgotten", []string{"get-ended"}, inside(endedForgotten)},
		{"unknown lease is the holder's", []string{"get-unknown"}, inside(unknownIsHolder)},
		{"last lease hidden while held", []string{"getkey-shows"}, inside(lastHiddenWhileHeld)},
		{"a read makes a key known", []string{"getkey-unknown"}, inside(readMakesKnown)},
		{"answers share memory", []string{"answers-are-copies"}, inside(aliasOfAnswers)},
		{"request kept by reference", []string{"answers-are-copies"}, inside(aliasOfRequest)},
		{"health counts ended leases", []string{"health-counts"}, inside(healthCountsEver)},
		{"health never ready", []string{"health-ready"}, around(plain(func(s contract.Store) contract.Store { return neverReady{s} }))},
	}
}

func brokenEvents() []brokenStore {
	return []brokenStore{
		{"history misses a release", []string{"history-every-transition"}, inside(historyMisses(contract.EventReleased))},
		{"history misses an expiry", []string{"history-every-transition", "history-expiry-by-itself"}, inside(historyMisses(contract.EventExpired))},
		{"history misses a revocation", []string{"history-every-transition"}, inside(historyMisses(contract.EventRevoked))},
		{"history loses the call", []string{"history-every-transition"}, inside(causeLost)},
		{"history of refusals", []string{"history-refusals-add-nothing"}, inside(historyOfRefusals)},
		{"history lists renewals", []string{"history-counts-renewals"}, inside(historyListsRenewals)},
		{"history keeps the oldest", []string{"history-keeps-newest"}, inside(historyKeepsOldest)},
		{"history by position", []string{"history-pages"}, inside(historyByPosition)},
		{"hand-over told backwards", []string{"history-of-handover"}, inside(handoverBackwards)},
		{"history lost at a restart", []string{"reopen-keeps-history"}, inside(historyLostAtRestart)},
		{"expiry recorded before it", []string{"history-expiry-by-itself"}, inside(expiryRecordedEarly)},
		{"stream misses renewals", []string{"watch-all-kinds"}, inside(watchMisses(contract.EventRenewed))},
		{"stream misses expiries", []string{"watch-all-kinds"}, inside(watchMisses(contract.EventExpired))},
		{"stream has ids of its own", []string{"watch-ids-of-history"}, inside(streamIDs)},
		{"stream not filtered", []string{"watch-filters-literal"}, inside(watchUnfiltered)},
		{"stream of all kinds", []string{"watch-filters-kinds"}, inside(watchAnyKind)},
		{"stream from the start", []string{"watch-from-now"}, inside(watchFromStart)},
		{"stream resumes now", []string{"watch-resumes"}, inside(resumeFromNow)},
		{"stream repeats its cursor", []string{"watch-resumes", "watch-resumes-in-traffic"}, inside(resumeRepeats)},
		{"gap not told", []string{"watch-slow-reader"}, inside(gapNotTold)},
		{"cursor unknown at first", []string{"watch-cursor"}, around(plain(func(s contract.Store) contract.Store { return &cursored{s, cursorOfEvents} }))},
		{"cursor stays", []string{"watch-cursor"}, around(plain(func(s contract.Store) contract.Store { return &cursored{s, cursorStays} }))},
		{"cursor runs ahead", []string{"watch-cursor"}, around(plain(func(s contract.Store) contract.Store { return &cursored{s, cursorRunsAhead} }))},
		{"stream ends with its call", []string{"watch-ends"}, around(plain(func(s contract.Store) contract.Store { return streamOfCall{s} }))},
	}
}

func brokenHandles() []brokenStore {
	return []brokenStore{
		{"works after close", []string{"closed-answers-closed", "watch-ends"}, around(plain(func(s contract.Store) contract.Store { return worksAfterClose{s} }))},
		{"closing twice fails", []string{"close-twice"}, around(plain(func(s contract.Store) contract.Store { return &closeFailsTwice{Store: s} }))},
		{"close releases leases", []string{"close-leaves-others"}, around(plain(func(s contract.Store) contract.Store { return &closeReleases{Store: s} }))},
		{"closed and applied", []string{"close-in-flight"}, around(plain(func(s contract.Store) contract.Store { return &closedButApplied{Store: s} }))},
		{"close lets waiters wait", []string{"wait-close-answers"}, around(plain(func(s contract.Store) contract.Store { return &closeLetsWait{Store: s} }))},
	}
}
