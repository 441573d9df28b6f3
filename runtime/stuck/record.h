/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_STUCK_RECORD_H
#define PLAIT_RUNTIME_STUCK_RECORD_H

#include <stdatomic.h>
#include <stdint.h>

/* What a rank is doing now, in memory that other processes can read while it
 * hangs. The memory is an unnamed file (memfd), opened as /proc/PID/fd/N, so
 * that nothing is left of it however the process ends. To note something takes
 * a few plain stores; only create, destroy, open and close take locks or call
 * the kernel. */

#define PLAIT_RECORD_MAGIC UINT64_C(0x33306b6375747350) /* "Pstuck03" */
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
    PLAIT_PHASE_LOAD,    /* reading weights */
    PLAIT_PHASE_OPEN,    /* opening the data */
    PLAIT_PHASE_FOREIGN, /* of a program that does not report phases */
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
    /* control operations, on values in host memory */
    PLAIT_OP_BARRIER,
    PLAIT_OP_CONTROL_BROADCAST,
    PLAIT_OP_CONTROL_ALL_GATHER,
    PLAIT_OP_CONTROL_ALL_REDUCE,
    PLAIT_NOPS
};

/* Operations of a group are numbered from 1 in three series. In the first two
 * all ranks of the group use the same numbers; messages are counted by each
 * rank for itself. */
enum plait_series {
    PLAIT_SERIES_DATA,
    PLAIT_SERIES_CONTROL,
    PLAIT_SERIES_MESSAGE,
    PLAIT_NSERIES
};

enum plait_series plait_op_series(enum plait_op op);

/* An operation and its number packed into one word; 0: none. */
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
    PLAIT_RECORD_LAST = 4 /* operations remembered per series */
};

struct plait_record_op {
    _Atomic uint64_t tag, bytes;
};

/* One communicator. Written by one thread at a time. */
struct plait_record_group {
    char name[24];
    int32_t first;       /* its lowest rank: tells groups of one name apart */
    int32_t size, index; /* index: this rank's among them */
    _Atomic uint64_t entered[PLAIT_NSERIES]; /* number of the last operation */
    struct plait_record_op last[2][PLAIT_RECORD_LAST]; /* not for messages */
    _Atomic uint64_t waits; /* tag the host waits for, 0: no wait */
    _Atomic uint64_t bytes; /* of the operation it waits for */
    _Atomic double since;   /* start of that wait, CLOCK_MONOTONIC */
    _Atomic int32_t peer;   /* of a message: the other rank's index */
};

struct plait_record {
    uint64_t magic; /* set last, when the rest is valid */
    uint64_t run;   /* the same for all ranks of a run */
    int32_t size;   /* of this struct */
    int32_t rank, world, gpu, pid;
    char host[64], job[64];
    unsigned char v6[16], v4[4]; /* address of its node; 0: none */
    _Atomic int64_t step;
    _Atomic int32_t phase;
    _Atomic double phase_since;
    _Atomic double alive;    /* when one of its threads last ran */
    _Atomic double moved;    /* when it was last seen to do something: to enter
                                an operation, to go into another phase, to read
                                or to write */
    _Atomic int32_t blocked; /* whether `where` is set */
    char where[128];
    char file[128];       /* for PLAIT_PHASE_OPEN */
    _Atomic int32_t told; /* it has reported why the run ends */
    /* Connections whose other machine does not answer; set when the run
     * hangs. */
    _Atomic int32_t unanswered;
    _Atomic int32_t ngroups;
    struct plait_record_group group[PLAIT_RECORD_GROUPS];
};

/* NULL with errno. The caller destroys the record with the descriptor. */
struct plait_record *plait_record_create(int *fd);
void plait_record_destroy(struct plait_record *record, int fd);
/* Copies the record that process `pid` has open as `fd`. Nothing of the process
 * or of its user can stop or harm the caller, who may be root: the file must be
 * memory of the process's own user, and may be cut short or change at any
 * time. What the copy says is not checked. -1 with errno where it is not a
 * record. */
int plait_record_copy(int pid, int fd, struct plait_record *copy);
/* For ranks of one run, of one user. Maps the record that process `pid` has
 * open as `fd`, read-only; NULL with errno where it is not a record. */
const struct plait_record *plait_record_open(int pid, int fd);
void plait_record_close(const struct plait_record *record);

/* `record` may be NULL here and below. */
void plait_record_step(struct plait_record *record, int64_t step);
/* For runtime/trace/activity.c, as are the operations of groups below. */
void plait_record_phase(struct plait_record *record, enum plait_phase phase,
                        double now);
/* The file or pattern that is opened in PLAIT_PHASE_OPEN. */
void plait_record_file(struct plait_record *record, const char *path);

/* Reserves an entry for one more communicator; NULL where all are taken or
 * there is no record. */
struct plait_record_group *plait_record_add_group(struct plait_record *record,
                                                  const char *name, int first,
                                                  int size, int index);
/* Notes that the host enters the next operation of the group; returns its
 * tag. */
uint64_t plait_record_enter(struct plait_record_group *group, enum plait_op op,
                            uint64_t bytes, int peer, double now);
/* Notes that the host waits for an operation that it entered before. */
void plait_record_wait(struct plait_record_group *group, uint64_t tag,
                       uint64_t bytes, int peer, double now);
void plait_record_leave(struct plait_record_group *group);

#endif
