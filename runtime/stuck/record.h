/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_STUCK_RECORD_H
#define PLAIT_RUNTIME_STUCK_RECORD_H

#include <stdatomic.h>
#include <stdint.h>

/* What a rank does now, in memory that others may read while it hangs: a file
 * without a name (memfd), which they open as /proc/PID/fd/N, so that nothing
 * is left of it when the process is gone, however it ended. Noting something
 * is a few plain stores; no function here takes a lock or calls the kernel,
 * but for those that create and destroy. */

#define PLAIT_RECORD_MAGIC UINT64_C(0x31306b6375747350) /* "Pstuck01" */
#define PLAIT_RECORD_FILE "plait-record"

enum plait_phase {
    PLAIT_PHASE_START,
    PLAIT_PHASE_DATA,
    PLAIT_PHASE_FORWARD,
    PLAIT_PHASE_BACKWARD,
    PLAIT_PHASE_REDUCE,
    PLAIT_PHASE_OPTIMIZER,
    PLAIT_PHASE_BETWEEN,
    PLAIT_PHASE_EVALUATION,
    PLAIT_PHASE_LOG,
    PLAIT_PHASE_SAVE,
    PLAIT_PHASE_CHECK,
    PLAIT_PHASE_LOAD,    /* weights */
    PLAIT_PHASE_OPEN,    /* data */
    PLAIT_PHASE_FOREIGN, /* of a program that tells none */
    PLAIT_NPHASES
};

enum plait_op {
    PLAIT_OP_ALL_REDUCE,
    PLAIT_OP_REDUCE_SCATTER,
    PLAIT_OP_ALL_GATHER,
    PLAIT_OP_ALL_TO_ALL,
    PLAIT_OP_BROADCAST,
    PLAIT_OP_SEND,
    PLAIT_OP_RECV,
    /* of the host's values */
    PLAIT_OP_BARRIER,
    PLAIT_OP_CONTROL_BROADCAST,
    PLAIT_OP_CONTROL_ALL_GATHER,
    PLAIT_OP_CONTROL_ALL_REDUCE,
    PLAIT_NOPS
};

/* Operations of a group are numbered from 1 in three series. In the first two
 * all of its ranks have the same numbers; messages a rank counts for itself. */
enum plait_series {
    PLAIT_SERIES_DATA,
    PLAIT_SERIES_CONTROL,
    PLAIT_SERIES_MESSAGE,
    PLAIT_NSERIES
};

enum plait_series plait_op_series(enum plait_op op);

/* An operation and its number in one word; 0: none. */
static inline uint64_t plait_op_tag(uint64_t number, enum plait_op op)
{
    return number << 8 | ((unsigned)op + 1);
}

static inline uint64_t plait_tag_number(uint64_t tag)
{
    return tag >> 8;
}

static inline enum plait_op plait_tag_op(uint64_t tag)
{
    return (enum plait_op)((tag & 0xff) - 1);
}

enum {
    PLAIT_RECORD_GROUPS = 24,
    PLAIT_RECORD_LAST = 4 /* operations of a series that are remembered */
};

struct plait_record_op {
    _Atomic uint64_t tag, bytes;
};

/* Of one communicator. One thread at a time writes. */
struct plait_record_group {
    char name[24];
    int32_t first; /* the lowest of its ranks: tells groups of a name apart */
    int32_t size;
    _Atomic uint64_t entered[PLAIT_NSERIES]; /* number of the last one */
    struct plait_record_op last[2][PLAIT_RECORD_LAST]; /* not of messages */
    _Atomic uint64_t waits; /* tag of what the host waits in, 0: in nothing */
    _Atomic uint64_t bytes; /* of that */
    _Atomic double since;   /* when that began, CLOCK_MONOTONIC */
    _Atomic int32_t peer;   /* of a message: its rank in the group */
};

struct plait_record {
    uint64_t magic; /* the last that is set */
    uint64_t run;   /* the same for all ranks of a run */
    int32_t size;   /* of this struct */
    int32_t rank, world, gpu, pid;
    char host[64], job[64];
    unsigned char v6[16], v4[4]; /* its node's address; 0: none */
    _Atomic int64_t step;
    _Atomic int32_t phase;
    _Atomic double phase_since;
    _Atomic double alive;    /* when a thread of it last ran */
    _Atomic int32_t blocked; /* `where` says what in */
    char where[128];
    char file[128];       /* of PLAIT_PHASE_OPEN */
    _Atomic int32_t told; /* it has said why the run ends */
    /* Connections that the other end's machine does not answer on; noted when
     * it hangs. */
    _Atomic int32_t unanswered;
    _Atomic int32_t ngroups;
    struct plait_record_group group[PLAIT_RECORD_GROUPS];
};

/* NULL with errno. */
struct plait_record *plait_record_create(int *fd);
void plait_record_destroy(struct plait_record *record, int fd);
/* Read-only, what process `pid` has as `fd`; NULL with errno where there is no
 * record. */
const struct plait_record *plait_record_open(int pid, int fd);
void plait_record_close(const struct plait_record *record);

/* Seconds of CLOCK_MONOTONIC, the same for all processes of a machine. */
double plait_record_now(void);

/* NULL-safe. */
void plait_record_step(struct plait_record *record, int64_t step);
void plait_record_phase(struct plait_record *record, enum plait_phase phase);
/* PLAIT_PHASE_OPEN, with the file or pattern that is opened. */
void plait_record_open_data(struct plait_record *record, const char *path);

/* A place for one more communicator; NULL: there is none, or no record. */
struct plait_record_group *plait_record_add_group(struct plait_record *record,
                                                  const char *name, int first,
                                                  int size);
/* The host enters the next operation of the group; its tag. */
uint64_t plait_record_enter(struct plait_record_group *group, enum plait_op op,
                            uint64_t bytes, int peer, double now);
/* It waits for one that it entered before. */
void plait_record_wait(struct plait_record_group *group, uint64_t tag,
                       uint64_t bytes, int peer, double now);
void plait_record_leave(struct plait_record_group *group);

#endif
