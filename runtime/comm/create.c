/* SPDX-License-Identifier: Apache-2.0 */
/* plait_comm_create(): which backend makes the world. */
#include "config.h"

#include "runtime/comm/comm_private.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* How long the first rank of a job waits for the last, seconds. */
#define RENDEZVOUS_S 300

static struct plait_comm *host_create(enum plait_comm_kind kind,
                                      const struct plait_launch *launch,
                                      const struct plait_ops *ops,
                                      struct plait_device *dev,
                                      struct plait_error *err)
{
    struct plait_comm *comm;

    if (kind == PLAIT_COMM_MPI) {
#ifdef HAVE_MPI
        return plait_mpi_create(ops, dev, launch, err);
#else
        plait_errorf(err, "this plait was built without MPI (--without-mpi)");
        errno = ENOSYS;
        return NULL;
#endif
    }
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

/* The communicator for NCCL's host values: over TCP where the launch contract
 * has a rendezvous, so that no MPI is needed, else MPI. */
static struct plait_comm *nccl_host(const struct plait_launch *launch,
                                    struct plait_error *err)
{
    enum plait_comm_kind kind = PLAIT_COMM_MPI;

    if (launch && launch->world_size > 1 && launch->master_port > 0)
        return plait_tcp_create(launch, RENDEZVOUS_S, err);
    if (launch && launch->world_size == 1)
        kind = PLAIT_COMM_SELF;
#ifndef HAVE_MPI
    if (!launch)
        kind = PLAIT_COMM_SELF;
#endif
    return host_create(kind, launch, NULL, NULL, err);
}

static struct plait_comm *nccl_create(const struct plait_ops *ops,
                                      struct plait_device *dev,
                                      const struct plait_launch *launch,
                                      struct plait_error *err)
{
    const char *dir = getenv("PLAIT_MODULE_PATH");
    struct plait_comm *host, *comm;
    char path[4096];
    void *module, *symbol;

    snprintf(path, sizeof(path), "%s/plait_nccl.so",
             dir ? dir : PLAIT_MODULEDIR);
    module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    symbol = module ? dlsym(module, "plait_nccl_create") : NULL;
    if (!symbol) {
        plait_errorf(err, "NCCL: %s", dlerror());
        errno = ENOSYS;
        return NULL;
    }
    host = nccl_host(launch, err);
    if (!host)
        return NULL;
    comm =
        ((__typeof__(&plait_nccl_create))symbol)(host, ops, dev, launch, err);
    if (!comm) {
        plait_comm_destroy(host);
        return NULL;
    }
    comm->host = host;
    return comm;
}

static struct plait_comm *socket_create(const struct plait_ops *ops,
                                        struct plait_device *dev,
                                        const struct plait_launch *launch,
                                        struct plait_error *err)
{
    errno = EINVAL;
    if (ops && ops->gpu)
        plait_errorf(err, "sockets connect ranks on CPUs; GPUs have NCCL, or "
                          "MPI where they are shared");
    else if (!launch)
        plait_errorf(err, "sockets need a plan: start with plait run, or with "
                          "srun and a flag of the plugin such as --tp");
    else if (launch->world_size == 1)
        return host_create(PLAIT_COMM_SELF, launch, ops, dev, err);
    else if (launch->master_port <= 0)
        plait_errorf(err, "sockets need the rendezvous (MASTER_ADDR, "
                          "MASTER_PORT): leave out --rendezvous=none");
    else
        return plait_socket_create(ops, dev, launch, RENDEZVOUS_S, err);
    return NULL;
}

struct plait_comm *plait_comm_create(enum plait_comm_kind kind,
                                     const struct plait_ops *ops,
                                     struct plait_device *dev,
                                     const struct plait_launch *launch,
                                     struct plait_error *err)
{
    if (kind == PLAIT_COMM_NCCL)
        return nccl_create(ops, dev, launch, err);
    if (kind == PLAIT_COMM_SOCKET)
        return socket_create(ops, dev, launch, err);
    return host_create(kind, launch, ops, dev, err);
}
