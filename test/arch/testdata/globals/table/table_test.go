package table_test

import "leased/table"

var calls int

func swap() {
	calls++          // want "calls is assigned to: it is a package-level variable, shared by all that runs in this process"
	table.Read = nil // want "table.Read is assigned to: it is a package-level variable, shared by all that runs in this process"
}
