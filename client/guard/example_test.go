package guard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"leased/client/guard"
	"leased/gateway/api"
)

// Two holders of a key write, the one whose lease is over last.
func ExampleSQL_Accept() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:example?mode=memory&cache=shared")
	if err != nil {
		panic(err)
	}
	defer func() { _ = db.Close() }()
	fence, err := guard.NewSQL(guard.SQLOptions{Dialect: guard.SQLite})
	if err != nil {
		panic(err)
	}
	_, err = db.ExecContext(ctx, "CREATE TABLE report (text TEXT)")
	if err := errors.Join(err, fence.CreateTable(ctx, db)); err != nil {
		panic(err)
	}

	write := func(lease *api.Lease, text string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := fence.Accept(ctx, tx, guard.Of(lease)); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO report VALUES (?)", text); err != nil {
			return err
		}
		return tx.Commit()
	}
	before := &api.Lease{Namespace: "default", KeyID: "Jx1Yl0VZQyqXyD6V3sQ7Ow", Token: 7}
	after := &api.Lease{Namespace: "default", KeyID: "Jx1Yl0VZQyqXyD6V3sQ7Ow", Token: 12}
	fmt.Println(write(before, "by the first holder"))
	fmt.Println(write(after, "by the second holder"))
	err = write(before, "by the first holder, late")
	fmt.Println(errors.Is(err, guard.ErrStale), err)
	// Output:
	// <nil>
	// <nil>
	// true fence default/Jx1Yl0VZQyqXyD6V3sQ7Ow: token 7 is stale, 12 was seen
}
