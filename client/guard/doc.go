// Package guard has the fences of the protected side: what a program puts between
// a write and whoever may have lost the lease that allows it.
//
// Holding a lease is no permission to write. A process that was suspended, or a
// packet that was late, writes after the lease has gone to another. What stops it
// is the fencing token, which rises with every grant of a key: the protected side
// remembers the highest one it has seen and refuses every lower one. A fence is as
// good as the bond between that comparison and the write:
//
//	SQL      compares in the transaction of the write: nothing comes between
//	Memory   compares in this process, and admits a higher token only after the
//	         work with a lower one has ended; forgets everything with the process
//	HTTP     is a middleware in front of handlers, over Memory or another Register
//
// All of them accept an equal token again: it is the same grant. All of them count
// what they refuse as stale, with a Counter, which a Prometheus counter is.
//
//	fence, err := guard.NewSQL(guard.SQLOptions{Dialect: guard.PostgreSQL})
//	…
//	tx, err := db.BeginTx(ctx, nil)
//	defer tx.Rollback()
//	if err := fence.Accept(ctx, tx, guard.Of(lease)); err != nil {
//		return err // errors.Is(err, guard.ErrStale): stop, the lease is another's
//	}
//	… the writes …
//	return tx.Commit()
//
// # What this package must not know
//
// No database driver, no metrics library, no server framework, and nothing of how
// a lease is held: the protected side needs no connection to the lease service.
package guard
