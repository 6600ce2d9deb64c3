module leased

go 1.26.0
