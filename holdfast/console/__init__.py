"""The command line tool: commands for people and scripts that look at a node, a log, snapshots or history, or change state.

- `commands/`: one module or package per verb;
- `show/`: output: tables, JSON, progress, differences; it reads nothing;
- `sources/`: the places that commands read: node, log, snapshot store, history;
- `job_process`, `job_output`: the compaction job in this process, and its output; `node_process`: a node of `holdfast dev`;
- `options`, `confirmation`, `open_history`: shared by several commands: options, a call to a node, consent before data is lost,
  a history and the log after it;
- `doctor/`: the checks of `holdfast doctor`;
- `outcomes`, `interrupts`, `standard_output`: exit codes and failures; signals; a standard output that is closed;
- `node_session`: the connections of a command to nodes;
- `lazy_commands`, `importing`: a faster start of commands.

A command parses, calls one function, and prints: data to standard output, everything else to standard error.
"""
