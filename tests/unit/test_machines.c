/* SPDX-License-Identifier: Apache-2.0 */
/* Machines of many kinds: what is counted on each, and what the tasks of a step
 * on it get. Recorded ones (--with-topology-corpus) and, of kinds that nobody
 * has recorded, made ones. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "machines.h"
#include "tap.h"
#include "topology/start/seats.h"

/* ---- running it ---- */

/* The environment of a step, and after it what a task gets. */
static struct {
    char text[4096];
    char gpu[16], cpus[1024], nics[256], variable[512], hca[256], ucx[256];
    char cxi[256], local[16], order[16];
} env;

static int get(void *arg, const char *name, char *buf, size_t size)
{
    size_t n = strlen(name);
    const char *at = env.text;

    (void)arg;
    buf[0] = '\0';
    while (*at) {
        size_t length = strcspn(at, " ");

        if (strncmp(at, name, n) == 0 && at[n] == '=') {
            snprintf(buf, size, "%.*s", (int)(length - n - 1), at + n + 1);
            return 0;
        }
        at += length + (at[length] == ' ');
    }
    errno = ENOENT;
    return -1;
}

static int set(void *arg, const char *name, const char *value)
{
    const struct {
        const char *name;
        char *at;
        size_t size;
    } known[] = {
        {"PLAIT_GPU", env.gpu, sizeof(env.gpu)},
        {"PLAIT_CPUS", env.cpus, sizeof(env.cpus)},
        {"PLAIT_NICS", env.nics, sizeof(env.nics)},
        {"CUDA_VISIBLE_DEVICES", env.variable, sizeof(env.variable)},
        {"ROCR_VISIBLE_DEVICES", env.variable, sizeof(env.variable)},
        {"ZE_AFFINITY_MASK", env.variable, sizeof(env.variable)},
        {"NCCL_IB_HCA", env.hca, sizeof(env.hca)},
        {"UCX_NET_DEVICES", env.ucx, sizeof(env.ucx)},
        {"FI_CXI_DEVICE_NAME", env.cxi, sizeof(env.cxi)},
        {"ZE_ENABLE_PCI_ID_DEVICE_ORDER", env.order, sizeof(env.order)},
        {"LOCAL_RANK", env.local, sizeof(env.local)}};

    (void)arg;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(known[i].name, name) == 0)
            snprintf(known[i].at, known[i].size, "%s", value);
    return 0;
}

static const struct plait_task_env task_env = {NULL, get, set};

static int count_visible(const char *text)
{
    static const char *const names[] = {
        "CUDA_VISIBLE_DEVICES=", "ROCR_VISIBLE_DEVICES=", "ZE_AFFINITY_MASK="};
    int n = 1;

    for (size_t i = 0; i < 3; i++) {
        const char *at = strstr(text, names[i]);

        for (; at && *at && *at != ' '; at++)
            n += *at == ',';
    }
    return n;
}

/* Seats for as many tasks as the step sees GPUs. */
static struct plait_seats *sit(struct plait_node *node, const char *text,
                               struct plait_error *err)
{
    struct plait_seats *seats = calloc(1, sizeof(*seats));
    int n = count_visible(text);

    memset(&env, 0, sizeof(env));
    snprintf(env.text, sizeof(env.text), "%s", text);
    plait_layout_init(&seats->launch.layout);
    seats->launch.layout.size[PLAIT_DP] = n;
    seats->launch.local_world_size = seats->launch.world_size = n;
    seats->launch.nnodes = 1;
    seats->node = node;
    seats->nccl = seats->ucx = seats->cxi = 1;
    seats->rendezvous = 1;
    strcpy(seats->launch.master_addr, "n1");
    seats->launch.master_port = 25003;
    if (plait_seats_bind_gpus(seats, &task_env, err) == 0)
        return seats;
    free(seats);
    return NULL;
}

/* "GPU:cores:NICs" of each task; the rest of what the last one gets is left in
 * `env`, and the first one's visible devices in `variable`. */
static void describe(struct plait_node *node, const char *text, char *to,
                     size_t size, char *variable)
{
    struct plait_error err = {""};
    struct plait_seats *seats = sit(node, text, &err);
    size_t used = 0;

    if (!seats) {
        snprintf(to, size, "error: %s", err.text);
        return;
    }
    for (int i = 0; i < seats->launch.local_world_size; i++) {
        env.gpu[0] = env.cpus[0] = env.nics[0] = env.variable[0] = '\0';
        if (plait_seats_take(seats, i, &task_env, &err) < 0)
            used += (size_t)snprintf(to + used, size - used, "%s", err.text);
        used += (size_t)snprintf(to + used, size - used, "%s%s:%s:%s",
                                 i ? " " : "", env.gpu, env.cpus, env.nics);
        if (i == 0)
            strcpy(variable, env.variable);
    }
    if (seats->note.text[0])
        snprintf(to, size, "unknown: %s", seats->note.text);
    free(seats);
}

static int islands_of_several(const struct plait_node *node)
{
    int n = 0;

    for (int i = 0; i < node->nislands; i++) {
        int members = 0;

        for (int k = 0; k < node->ngpus; k++)
            members += node->gpus[k].island == i;
        n += members > 1;
    }
    return n;
}

static struct plait_node *load(const char *corpus, size_t row,
                               struct plait_error *err)
{
    char path[4096], start[64] = "";
    FILE *file;

    if (rows[row].made)
        return made_node_create(rows[row].made, err);
    if (rows[row].text)
        return plait_node_parse_nccl(rows[row].name, rows[row].text,
                                     strlen(rows[row].text), err);
    snprintf(path, sizeof(path), "%s/%s", corpus, rows[row].name);
    file = fopen(path, "re");
    if (file && fread(start, 1, sizeof(start) - 1, file) > 0 &&
        strncmp(start, "<system", 7) == 0) {
        fclose(file);
        return plait_node_create_nccl(path, err);
    }
    if (file)
        fclose(file);
    return plait_node_create_xml(path, err);
}

static void test_row(const char *corpus, size_t row)
{
    struct plait_error err = {""};
    struct plait_node *node = load(corpus, row, &err);
    char got[4096], variable[512] = "";
    const char *want = rows[row].seats, *name = rows[row].name;
    size_t n = strlen(want);

    if (!ok(node != NULL, "%s reads: %s", name, err.text))
        return;
    ok(node->ngpus == rows[row].gpus && node->nnics == rows[row].nics &&
           node->numa_nodes == rows[row].numa &&
           islands_of_several(node) == rows[row].islands,
       "%s: %d GPUs, %d islands, %d NUMA nodes, %d NICs", name, node->ngpus,
       islands_of_several(node), node->numa_nodes, node->nnics);
    for (int i = 0; i < node->ngpus; i++)
        if (node->gpus[i].model[0] == '\0')
            ok(0, "%s: GPU %d has no name", name, i);
    if (rows[row].env[0]) {
        describe(node, rows[row].env, got, sizeof(got), variable);
        if (!ok(strncmp(want, "unknown", 7) == 0 ? strncmp(got, want, n) == 0
                                                 : strcmp(got, want) == 0,
                "%s: %s", name, want))
            diag("got %s", got);
        if (!ok(strcmp(variable, rows[row].variable) == 0, "%s: visible are %s",
                name, rows[row].variable))
            diag("got %s", variable);
    }
    plait_node_destroy(node);
}

/* ---- what else tasks get ---- */

static void gets(const struct made_machine *made, const char *hca,
                 const char *ucx, const char *cxi)
{
    struct plait_error err = {""};
    struct plait_node *node = made_node_create(made, &err);
    char got[4096], variable[512];

    if (!ok(node != NULL, "%s", err.text))
        return;
    describe(node, "CUDA_VISIBLE_DEVICES=0,1 SLURM_STEP_GPUS=0,1", got,
             sizeof(got), variable);
    ok(strcmp(env.hca, hca) == 0 && strcmp(env.ucx, ucx) == 0 &&
           strcmp(env.cxi, cxi) == 0,
       "NCCL_IB_HCA '%s', UCX_NET_DEVICES '%s', FI_CXI_DEVICE_NAME '%s'",
       env.hca, env.ucx, env.cxi);
    plait_node_destroy(node);
}

/* `env` has what the last task gets: that of all for NCCL and libfabric, its
 * own for UCX. */
static void test_nics(void)
{
    gets(&h100, "=mlx5_0,mlx5_1", "mlx5_1:1", "");
    gets(&slingshot_old, "", "hsn0", "cxi1,cxi0");
    gets(&slingshot_new, "", "hsn0", "cxi1,cxi0");
    gets(&efa, "", "", "");
}

static void test_only_gpu(void)
{
    struct plait_node *node = made_node_create(&mig, NULL);
    char got[4096], variable[512];

    describe(node,
             "CUDA_VISIBLE_DEVICES=MIG-b1111111-2222,MIG-c1111111-2222 "
             "SLURM_STEP_GPUS=1,2",
             got, sizeof(got), variable);
    ok(strcmp(env.variable, "MIG-c1111111-2222") == 0,
       "each task has one MIG instance: %s", env.variable);
    plait_node_destroy(node);
    node = made_node_create(&two_pvc, NULL);
    describe(node, "ZE_AFFINITY_MASK=0,1 SLURM_STEP_GPUS=0,1", got, sizeof(got),
             variable);
    ok(strcmp(env.order, "1") == 0, "Level Zero counts in the bus's order");
    plait_node_destroy(node);
}

/* ---- names and faults ---- */

static void test_names(const char *corpus)
{
    struct plait_error err = {""};
    struct plait_node *node = made_node_create(&two_in_one, &err);
    char path[4096], text[256] = "";

    ok(node && strstr(node->gpus[0].model, "NVIDIA") != NULL,
       "an unknown GPU is called %s", node ? node->gpus[0].model : "");
    ok(node && !plait_node_find_odd(node, text, sizeof(text)),
       "nothing is odd without links");
    plait_node_destroy(node);
    if (!corpus)
        return;
    snprintf(path, sizeof(path), "%s/%s", corpus,
             "clusters/datacrunch-gb300-1tray-fault-gpu1.xml");
    node = plait_node_create_nccl(path, &err);
    ok(node && strcmp(node->gpus[0].model, "GB300") == 0 &&
           plait_node_find_odd(node, text, sizeof(text)) &&
           strcmp(text, "GPU 1 has no NVLink, the other 3 have: broken?") == 0,
       "%s", text);
    plait_node_destroy(node);
    snprintf(path, sizeof(path), "%s/%s", corpus,
             "clusters/datacrunch-gb300-1tray.xml");
    node = plait_node_create_nccl(path, &err);
    ok(node && !plait_node_find_odd(node, text, sizeof(text)),
       "a good tray is not odd");
    plait_node_destroy(node);
}

int main(void)
{
    const char *corpus = getenv("TOPOLOGY_CORPUS");

    corpus = corpus && corpus[0] ? corpus : NULL;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].made || rows[i].text || corpus)
            test_row(corpus, i);
    test_nics();
    test_only_gpu();
    test_names(corpus);
    return done_testing();
}
