"""The cheapest placement of every op that the placement rules allow, and a checked bound."""
