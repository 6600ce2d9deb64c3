// Package fleet has many holders keep many leases on one server for minutes, which
// takes little of any machine: it runs beside other packages. LEASED_CHAOS makes it
// ten minutes and a hundred thousand leases.
package fleet
