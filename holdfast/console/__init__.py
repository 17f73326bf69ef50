"""The command line tool: commands for people and scripts that look at a node, a log, snapshots or history, or change state.

- `commands/`: one module or package per verb;
- `show/`: what is printed: tables, JSON, progress, differences; it reads nothing;
- `sources/`: where commands read from: node, log, snapshot store, history;
- `job_process`, `job_output`: the compaction job in this process, and what it shows; `node_process`: a node of `holdfast dev`;
- `options`, `confirmation`, `open_history`: what several commands share: options, a call to a node, consent before data is lost,
  a history and the log behind it;
- `doctor/`: what `holdfast doctor` looks at;
- `outcomes`, `interrupts`, `standard_output`: exit codes and failures; signals; output that nothing takes;
- `node_session`: the connections of a command to nodes;
- `lazy_commands`, `importing`: what makes a command start sooner.

A command parses, calls one function, and prints: data to standard output, everything else to standard error.
"""
