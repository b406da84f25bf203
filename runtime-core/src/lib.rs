//! Operators, tasks, barriers, the coordinator and restarts: stateful stream jobs in one process.
