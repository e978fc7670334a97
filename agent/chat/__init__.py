"""Sessions: an engine of steps without a terminal, its commands, its journal, and a thin front.

`engine.Session.do(line)` runs one input and ends it as a step of the event stream. The front in
`shardproof.agent.chat.terminal`, `-p`, `resume` and `replay` all drive that engine.
"""
