"""The command line tool: commands for people and scripts that look at a node, a log, snapshots or history, or change state.

- `commands/`: one module or package per verb;
- `show/`: what is printed: tables, JSON, progress, differences; it reads nothing;
- `sources/`: where commands read from: node, log, snapshot store, history;
- `job_process`, `job_output`: the compaction job in this process, and what it shows; `node_process`: a node of `holdfast dev`;
- `options`, `confirmation`: what several commands share: options, a call to a node, consent before data is lost;
- `outcomes`, `interrupts`: exit codes and failures; signals.

A command parses, calls one function, and prints: data to standard output, everything else to standard error.
"""
