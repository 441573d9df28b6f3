/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_STUCK_LOOK_H
#define PLAIT_RUNTIME_STUCK_LOOK_H

#include "runtime/stuck/judge.h"

/* The state of a rank now, from its record and from /proc. /proc gives only
 * whether the process runs; the process may have ended and left its record
 * mapped here. */
void plait_stuck_look(const struct plait_record *record,
                      struct plait_stuck_rank *rank);
/* Of a rank that has no record here, only rank, gpu and state are set. */
void plait_stuck_unknown(int rank, struct plait_stuck_rank *out);

/* The state as in /proc/PID/stat: 'R', 'S', 'D', 'T' ...; 'X': no such
 * process. */
char plait_stuck_process_state(int pid);

/* Reads the first line of a file below /proc; "" where it cannot be read. */
void plait_stuck_read_line(const char *path, char *line, size_t size);

enum plait_stuck_state plait_stuck_state_of(int pid);

/* Identifies the PID namespace: equal for processes that can use each other's
 * process numbers. */
uint64_t plait_stuck_space(void);

/* Makes a text of another process a word of printable characters. */
void plait_stuck_clean_word(char *text);

/* What a thread of this machine is blocked in, from its system call, as "read
 * of FILE". "" where it is in no system call, in one that tells nothing, or
 * where the kernel hides it. The text is cleaned. */
void plait_stuck_where(int pid, int tid, char *text, size_t size);
/* The same of a process: of its first thread or, if that is not blocked, of any
 * that is blocked in a file. The loader and the saver have threads that read
 * and write for the one that trains. */
void plait_stuck_where_any(int pid, char *text, size_t size);

#endif
