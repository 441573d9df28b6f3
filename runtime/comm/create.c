/* SPDX-License-Identifier: Apache-2.0 */
/* plait_comm_create(): chooses the backend of the world. */
#include "config.h"

#include "runtime/comm/backend.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/same_build.h"
#include "runtime/comm/bootstrap/interface.h"
#include "runtime/comm/consensus.h"
#include "runtime/comm/world.h"

/* How long the first rank of a job waits for the last, in seconds. */
#define RENDEZVOUS_S 300

static struct plait_comm *self_create(const struct plait_launch *launch,
                                      const struct plait_ops *ops,
                                      struct plait_device *dev,
                                      struct plait_error *err)
{
    struct plait_comm *comm;

    if (launch && launch->world_size > 1) {
        plait_errorf(err,
                     "the launch has %d ranks, which need MPI, NCCL or "
                     "sockets",
                     launch->world_size);
        errno = EINVAL;
        return NULL;
    }
    comm = plait_self_create(ops, dev, "world");
    if (!comm)
        plait_errorf(err, "out of memory");
    return comm;
}

static struct plait_comm *mpi_create(const struct plait_launch *launch,
                                     const struct plait_ops *ops,
                                     struct plait_device *dev,
                                     struct plait_error *err)
{
#ifdef HAVE_MPI
    return plait_mpi_create(ops, dev, launch, err);
#else
    (void)launch;
    (void)ops;
    (void)dev;
    plait_errorf(err, "this plait was built without MPI (--without-mpi)");
    errno = ENOSYS;
    return NULL;
#endif
}

/* Without a secret each process that reaches the ports could join, also on one
 * node, which other users may share. Rank 0 says so. */
static int check_secret(const struct plait_launch *launch,
                        struct plait_error *err)
{
    if (*launch->secret)
        return 0;
    errno = EACCES;
    return launch->rank > 0
               ? -1
               : plait_errorf(err,
                              "there is no PLAIT_SECRET, so that any user who "
                              "reaches this port could join as a rank: set it "
                              "to the same 32 to 64 random hex digits for all "
                              "tasks, or to none where nobody else can reach "
                              "these machines");
}

/* The rendezvous of the launch contract, over TCP, without MPI. */
static struct plait_comm *tcp_create(const struct plait_launch *launch,
                                     struct plait_error *err)
{
    errno = EINVAL;
    if (!launch)
        plait_errorf(err, "sockets need a plan: start with plait run, or with "
                          "srun and a flag of the plugin such as --tp");
    else if (launch->world_size == 1)
        return self_create(launch, NULL, NULL, err);
    else if (launch->master_port <= 0)
        plait_errorf(err, "sockets need the rendezvous (MASTER_ADDR, "
                          "MASTER_PORT): leave out --rendezvous=none");
    else if (check_secret(launch, err) == 0)
        return plait_tcp_create(launch, RENDEZVOUS_S, err);
    return NULL;
}

struct plait_comm *plait_comm_meet(enum plait_comm_kind kind,
                                   const struct plait_launch *launch,
                                   struct plait_error *err)
{
    if (kind == PLAIT_COMM_SOCKET)
        return tcp_create(launch, err);
    return kind == PLAIT_COMM_MPI ? mpi_create(launch, NULL, NULL, err)
                                  : self_create(launch, NULL, NULL, err);
}

int plait_comm_agree_over(struct plait_comm *met, int rc,
                          struct plait_error *err)
{
    rc = plait_error_consensus(met, rc, err);
    met->agreed = rc < 0;
    return rc;
}

/* How NCCL's ranks meet: by the launch contract's rendezvous if there is one,
 * else by MPI. */
static enum plait_comm_kind nccl_meeting(const struct plait_launch *launch)
{
    if (launch && launch->world_size == 1)
        return PLAIT_COMM_SELF;
    if (launch && launch->master_port > 0)
        return PLAIT_COMM_SOCKET;
#ifndef HAVE_MPI
    if (!launch)
        return PLAIT_COMM_SELF;
#endif
    return PLAIT_COMM_MPI;
}

typedef __typeof__(plait_nccl_create) nccl_create_fn;

/* NULL: some rank has no NCCL; one rank has text in err. */
static nccl_create_fn *load_nccl(struct plait_comm *met,
                                 struct plait_error *err)
{
    static const struct plait_build mine = PLAIT_NCCL_BUILD;
    const char *dir = getenv("PLAIT_MODULE_PATH");
    nccl_create_fn *create = NULL;
    char path[4096];
    void *module;

    snprintf(path, sizeof(path), "%s/plait_nccl.so",
             dir ? dir : PLAIT_MODULEDIR);
    module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (module)
        *(void **)&create = dlsym(module, "plait_nccl_create");
    if (!create) {
        plait_errorf(err,
                     "NCCL, which several GPUs need, is missing on rank %d: "
                     "%s",
                     met->rank, dlerror());
    } else if (!plait_build_is(dlsym(module, "plait_nccl_build"), &mine)) {
        create = NULL;
        plait_errorf(err,
                     "%s is of another build of Plait than the program of "
                     "rank %d (%s); install both from one, and start again",
                     path, met->rank, PACKAGE_VERSION);
    }
    if (plait_error_consensus(met, create ? 0 : -1, err) == 0)
        return create;
    errno = ENOSYS;
    return NULL;
}

/* The hosts compare transfers by calls that need all of them. */
static int agree_on_comparing(struct plait_comm *met, struct plait_error *err)
{
    double strict = plait_call_strict();

    if (plait_comm_host_all_reduce(met, &strict, 1, PLAIT_MAX) < 0)
        return plait_errorf(err, "%s", plait_comm_error(met));
    plait_call_be_strict(strict > 0);
    return 0;
}

/* Of several interfaces NCCL may choose one by which other nodes cannot be
 * reached; the ranks have met over this one. What was set stays. */
static void choose_interface(const struct plait_launch *launch)
{
    char name[64] = "=";

    if (launch && launch->nnodes > 1 && launch->master_addr[0] &&
        !plait_interface_is_chosen() &&
        plait_interface_towards(launch->master_addr, name + 1,
                                sizeof(name) - 1) == 0 &&
        strcmp(name, "=lo") != 0)
        setenv("NCCL_SOCKET_IFNAME", name, 0);
}

/* "2, 5, 6 and 9 more": the ranks with 0 in made[size]. Returns how many they
 * are. */
static int list_ranks(const unsigned char *made, int size, char *text,
                      size_t room)
{
    size_t used = 0;
    int n = 0, shown = 0;

    for (int i = 0; i < size; i++)
        n += !made[i];
    text[0] = '\0';
    for (int i = 0; i < size && used + 24 < room; i++)
        if (!made[i])
            used += (size_t)snprintf(text + used, room - used, "%s%d",
                                     shown++ > 0 ? ", " : "", i);
    if (shown < n)
        snprintf(text + used, room - used, " and %d more", n - shown);
    return n;
}

/* All ranks learn whom NCCL has not connected in time, and the first of those
 * reports it. One that NCCL has refused does not come: it ends, and the others
 * see that. */
static int agree_on_late(struct plait_comm *met, bool late,
                         struct plait_error *err)
{
    const char *name = getenv("NCCL_SOCKET_IFNAME");
    struct plait_error why = *err;
    unsigned char mine = !late, *made;
    char ranks[120];
    int n;

    made = plait_gather_values(met, &mine, sizeof(mine), err);
    if (!made)
        return -1;
    n = list_ranks(made, met->size, ranks, sizeof(ranks));
    met->agreed = n > 0;
    err->text[0] = '\0';
    if (n > 0 && memchr(made, 0, (size_t)met->size) == &made[met->rank])
        plait_errorf(err,
                     "NCCL has not connected rank%s %s of %d: %s; "
                     "NCCL_SOCKET_IFNAME is %s, which must name an interface "
                     "by which all nodes reach each other",
                     n > 1 ? "s" : "", ranks, met->size, why.text,
                     name ? name : "not set");
    free(made);
    errno = ETIMEDOUT;
    return n > 0 ? -1 : 0;
}

static struct plait_comm *nccl_over(struct plait_comm *met,
                                    const struct plait_ops *ops,
                                    struct plait_device *dev,
                                    const struct plait_launch *launch,
                                    struct plait_error *err)
{
    nccl_create_fn *create = load_nccl(met, err);
    struct plait_comm *comm = NULL;

    choose_interface(launch);
    if (create && agree_on_comparing(met, err) == 0)
        comm = create(met, ops, dev, launch, err);
    else
        return NULL;
    if ((comm || errno == ETIMEDOUT) && agree_on_late(met, !comm, err) < 0) {
        if (comm) {
            comm->failed = true; /* aborted: not all ranks are in it */
            comm->vtable->destroy(comm);
        }
        return NULL;
    }
    if (comm)
        comm->host = met;
    return comm;
}

static struct plait_comm *socket_over(struct plait_comm *met,
                                      const struct plait_ops *ops,
                                      struct plait_device *dev,
                                      const struct plait_launch *launch,
                                      struct plait_error *err)
{
    struct plait_comm *comm;

    if (ops && ops->gpu) {
        plait_errorf(err, "--comm socket is for ranks on CPUs; ranks on GPUs "
                          "use NCCL, or MPI where they share a GPU");
        errno = EINVAL;
        return NULL;
    }
    comm = met->size == 1
               ? self_create(launch, ops, dev, err)
               : plait_socket_over(met, ops, dev, launch, RENDEZVOUS_S, err);
    if (comm)
        plait_comm_destroy(met);
    return comm;
}

/* An MPI communicator is already the final one: it only learns which device its
 * transfers are for. */
static struct plait_comm *
host_over(struct plait_comm *met, enum plait_comm_kind kind,
          const struct plait_ops *ops, struct plait_device *dev,
          const struct plait_launch *launch, struct plait_error *err)
{
    struct plait_comm *comm;

    if (kind == PLAIT_COMM_SELF || strcmp(met->vtable->name, "mpi") == 0) {
        memset(&met->stats, 0, sizeof(met->stats));
        met->ops = met->listeners.ops = ops;
        met->dev = dev;
        return met;
    }
    comm = mpi_create(launch, ops, dev, err);
    if (comm)
        plait_comm_destroy(met);
    return comm;
}

struct plait_comm *
plait_comm_over(struct plait_comm *met, enum plait_comm_kind kind,
                const struct plait_ops *ops, struct plait_device *dev,
                const struct plait_launch *launch, struct plait_error *err)
{
    if (kind == PLAIT_COMM_NCCL)
        return nccl_over(met, ops, dev, launch, err);
    if (kind == PLAIT_COMM_SOCKET)
        return socket_over(met, ops, dev, launch, err);
    return host_over(met, kind, ops, dev, launch, err);
}

struct plait_comm *plait_comm_create(enum plait_comm_kind kind,
                                     const struct plait_ops *ops,
                                     struct plait_device *dev,
                                     const struct plait_launch *launch,
                                     struct plait_error *err)
{
    enum plait_comm_kind meeting =
        kind == PLAIT_COMM_NCCL ? nccl_meeting(launch) : kind;
    struct plait_comm *met = plait_comm_meet(meeting, launch, err), *comm;

    if (!met)
        return NULL;
    comm = plait_comm_over(met, kind, ops, dev, launch, err);
    if (!comm) {
        int saved = errno;

        plait_comm_destroy(met);
        errno = saved;
    }
    return comm;
}
