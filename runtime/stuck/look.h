/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_STUCK_LOOK_H
#define PLAIT_RUNTIME_STUCK_LOOK_H

#include "runtime/stuck/judge.h"

/* What a record and /proc say of a rank now. The process is asked for its state
 * alone; `record` may be of one that has ended meanwhile. */
void plait_stuck_look(const struct plait_record *record,
                      struct plait_stuck_rank *rank);
/* Only rank, host and state, for one that has no record here. */
void plait_stuck_unknown(int rank, struct plait_stuck_rank *out);

/* 'R', 'S', 'D', 'T' ... as /proc/PID/stat has it; 'X' where there is no such
 * process. */
char plait_stuck_process_state(int pid);

/* One line of a file below /proc; "" where there is none. */
void plait_stuck_read_line(const char *path, char *line, size_t size);

enum plait_stuck_state plait_stuck_state_of(int pid);

/* Equal for processes that see each other's numbers. */
uint64_t plait_stuck_space(void);

/* What the system call says that a thread of this machine is blocked in, as
 * "read of FILE": "" where it is in none, in one that says nothing, or where
 * the kernel does not tell. tid 0: any thread of the process that is blocked in
 * a file. */
void plait_stuck_where(int pid, int tid, char *text, size_t size);

#endif
