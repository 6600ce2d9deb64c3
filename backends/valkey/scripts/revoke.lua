return conclude('\4', 5, function() end)
