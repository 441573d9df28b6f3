/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/site.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/base/yaml.h"

#define GB 1e9
#define US 1e-6
#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* The figures of a GPU type, in the units people use. */
static const struct {
    const char *name;
    size_t offset; /* of a double in struct plait_gpu_type */
    double unit, least, most;
} figures[] = {
    {"tflops", offsetof(struct plait_gpu_type, flops16), 1e12, 1e-3, 1e6},
    {"tflops_fp32", offsetof(struct plait_gpu_type, flops32), 1e12, 1e-3, 1e6},
    {"tflops_tf32", offsetof(struct plait_gpu_type, flops_tf32), 1e12, 1e-3,
     1e6},
    {"tflops_fp8", offsetof(struct plait_gpu_type, flops8), 1e12, 1e-3, 1e6},
    {"memory_gb", offsetof(struct plait_gpu_type, memory), GB, 1e-3, 1e6},
    {"memory_gbps", offsetof(struct plait_gpu_type, memory_bw), GB, 1e-3, 1e6},
    {"link_gbps", offsetof(struct plait_gpu_type, link_bw), GB, 1e-6, 1e6},
    {"link_us", offsetof(struct plait_gpu_type, link_alpha), US, 0, 1e6},
    {"host_gbps", offsetof(struct plait_gpu_type, host_bw), GB, 1e-6, 1e6},
    {"nic_gbps", offsetof(struct plait_gpu_type, nic_bw), GB, 1e-6, 1e6},
    {"nic_us", offsetof(struct plait_gpu_type, nic_alpha), US, 0, 1e6},
    {"hop_us", offsetof(struct plait_gpu_type, hop_alpha), US, 0, 1e6},
    {"oversubscription", offsetof(struct plait_gpu_type, oversubscription), 1,
     1e-3, 1e3},
    {"matmul", offsetof(struct plait_gpu_type, matmul), 1, 1e-3, 1},
    {"matmul_fp8", offsetof(struct plait_gpu_type, matmul8), 1, 1e-3, 1},
    {"attention", offsetof(struct plait_gpu_type, attention), 1, 1e-3, 1},
    {"stream", offsetof(struct plait_gpu_type, stream), 1, 1e-3, 1},
    {"layer_us", offsetof(struct plait_gpu_type, layer_s), US, 0, 1e6},
    {"score_bytes", offsetof(struct plait_gpu_type, score_bytes), 1, 0, 100},
    {"leaf_gpus", offsetof(struct plait_gpu_type, leaf_gpus), 1, 0, 1e6},
    {"failure_hours", offsetof(struct plait_gpu_type, failure_hours), 1, 1,
     1e9},
};
enum { NFIGURES = COUNT(figures) };

/* A type as the document has it; NAN: not said. */
struct entry {
    double figure[NFIGURES];
    int per_node, domain; /* domain 0: as many as per_node */
};

static const char *const too_large[] = {"refuse", "warn", "off"};

struct document {
    enum plait_too_large too_large;
    struct plait_yaml_list policies;
    struct plait_site_export export;
    struct plait_site_network network;
    bool job_comment;
    int gpu_type;
    struct entry entry[PLAIT_NGPU_TYPES];
};

static void document_init(struct document *document)
{
    document->job_comment = true;
    for (int i = 0; i < PLAIT_NAXES; i++)
        document->network.traffic_class[i] = -1;
    document->gpu_type = -1;
    for (int i = 0; i < PLAIT_NGPU_TYPES; i++) {
        document->entry[i].per_node = 0;
        for (int k = 0; k < NFIGURES; k++)
            document->entry[i].figure[k] = NAN;
    }
}

/* What is not said keeps the table's figure to the last bit. */
static void apply_figures(const struct entry *entry,
                          struct plait_gpu_type *type)
{
    if (entry->per_node)
        type->per_node = type->domain = entry->per_node;
    if (entry->domain)
        type->domain = entry->domain;
    for (int k = 0; k < NFIGURES; k++) {
        double value = entry->figure[k] * figures[k].unit;

        if (!isnan(value))
            memcpy((char *)type + figures[k].offset, &value, sizeof(value));
    }
}

static void list_figures(struct plait_yaml_field fields[NFIGURES + 2])
{
    for (int k = 0; k < NFIGURES; k++)
        fields[k] =
            (struct plait_yaml_field){.name = figures[k].name,
                                      .type = PLAIT_YAML_REAL,
                                      .offset = offsetof(struct entry, figure) +
                                                (size_t)k * sizeof(double),
                                      .min = figures[k].least,
                                      .max = figures[k].most};
    fields[NFIGURES] =
        (struct plait_yaml_field){.name = "per_node",
                                  .type = PLAIT_YAML_INT,
                                  .offset = offsetof(struct entry, per_node),
                                  .min = 1,
                                  .max = 1024};
    fields[NFIGURES + 1] =
        (struct plait_yaml_field){.name = "domain",
                                  .type = PLAIT_YAML_INT,
                                  .offset = offsetof(struct entry, domain),
                                  .min = 1,
                                  .max = 4096};
}

static const char *const within[] = {"node", "nvlink"};

#define MOST(axis, index)                                                 \
    {                                                                     \
        .name = axis, .type = PLAIT_YAML_INT,                             \
        .offset = (size_t)(index) * sizeof(int), .min = 1, .max = 1048576 \
    }

static const struct plait_yaml_field most[] = {
    MOST("tp", PLAIT_TP), MOST("cp", PLAIT_CP), MOST("ep", PLAIT_EP),
    MOST("dp", PLAIT_DP), MOST("pp", PLAIT_PP),
};

static const struct plait_yaml_field policy_keys[] = {
    {.name = "partition",
     .type = PLAIT_YAML_TEXT,
     .offset = offsetof(struct plait_policy, partition)},
    {.name = "gpu",
     .type = PLAIT_YAML_TEXT,
     .offset = offsetof(struct plait_policy, gpu)},
    {.name = "tp_within",
     .type = PLAIT_YAML_CHOICE,
     .offset = offsetof(struct plait_policy, tp_within),
     .choices = within,
     .count = COUNT(within)},
    {.name = "max",
     .type = PLAIT_YAML_MAP,
     .offset = offsetof(struct plait_policy, most),
     .fields = most,
     .count = COUNT(most)},
};

static const struct plait_yaml_field exports[] = {
    {.name = "nccl_ib_hca",
     .type = PLAIT_YAML_BOOL,
     .offset = offsetof(struct plait_site_export, nccl_ib_hca)},
    {.name = "ucx_net_devices",
     .type = PLAIT_YAML_BOOL,
     .offset = offsetof(struct plait_site_export, ucx_net_devices)},
};

#define CLASS(axis, index)                                            \
    {                                                                 \
        .name = axis, .type = PLAIT_YAML_INT,                         \
        .offset = (size_t)(index) * sizeof(int), .min = 0, .max = 255 \
    }

static const struct plait_yaml_field classes[] = {
    CLASS("tp", PLAIT_TP), CLASS("cp", PLAIT_CP), CLASS("ep", PLAIT_EP),
    CLASS("dp", PLAIT_DP), CLASS("pp", PLAIT_PP),
};

static const struct plait_yaml_field networks[] = {
    {.name = "sharp",
     .type = PLAIT_YAML_BOOL,
     .offset = offsetof(struct plait_site_network, sharp)},
    {.name = "traffic_class",
     .type = PLAIT_YAML_MAP,
     .offset = offsetof(struct plait_site_network, traffic_class),
     .fields = classes,
     .count = COUNT(classes)},
};

/* The document's sections. */
static int read_document(struct plait_yaml *yaml, struct document *document,
                         struct plait_error *err)
{
    struct plait_yaml_field entry[NFIGURES + 2], types[PLAIT_NGPU_TYPES];
    const char *names[PLAIT_NGPU_TYPES];
    const struct plait_yaml_field sections[] = {
        {.name = "gpu_type",
         .type = PLAIT_YAML_CHOICE,
         .offset = offsetof(struct document, gpu_type),
         .choices = names,
         .count = PLAIT_NGPU_TYPES},
        {.name = "gpu_types",
         .type = PLAIT_YAML_MAP,
         .offset = offsetof(struct document, entry),
         .fields = types,
         .count = PLAIT_NGPU_TYPES},
        {.name = "policies",
         .type = PLAIT_YAML_LIST,
         .offset = offsetof(struct document, policies),
         .max = PLAIT_POLICIES_MOST,
         .fields = policy_keys,
         .count = COUNT(policy_keys),
         .stride = sizeof(struct plait_policy)},
        {.name = "too_large",
         .type = PLAIT_YAML_CHOICE,
         .offset = offsetof(struct document, too_large),
         .choices = too_large,
         .count = COUNT(too_large)},
        {.name = "export",
         .type = PLAIT_YAML_MAP,
         .offset = offsetof(struct document, export),
         .fields = exports,
         .count = COUNT(exports)},
        {.name = "network",
         .type = PLAIT_YAML_MAP,
         .offset = offsetof(struct document, network),
         .fields = networks,
         .count = COUNT(networks)},
        {.name = "job_comment",
         .type = PLAIT_YAML_BOOL,
         .offset = offsetof(struct document, job_comment)},
    };

    list_figures(entry);
    for (int i = 0; i < PLAIT_NGPU_TYPES; i++) {
        names[i] = plait_gpu_types[i].name;
        types[i] = (struct plait_yaml_field){.name = names[i],
                                             .type = PLAIT_YAML_MAP,
                                             .offset = (size_t)i *
                                                       sizeof(struct entry),
                                             .fields = entry,
                                             .count = NFIGURES + 2};
    }
    return plait_yaml_read(yaml, plait_yaml_root(yaml), "", sections,
                           COUNT(sections), document, err);
}

static struct plait_site *create_site(struct plait_yaml *yaml,
                                      struct plait_error *err)
{
    struct plait_site *site = calloc(1, sizeof(*site));
    struct document document = {0};
    int rc = 0;

    if (!site) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    document_init(&document);
    document.policies.items = site->policies;
    if (yaml)
        rc = read_document(yaml, &document, err);
    site->npolicies = document.policies.n;
    if (rc < 0) {
        plait_site_destroy(site);
        return NULL;
    }
    site->export = document.export;
    site->network = document.network;
    site->job_comment = document.job_comment;
    site->too_large = document.too_large;
    site->gpu_type = document.gpu_type;
    site->gpu_type_given = document.gpu_type >= 0;
    for (int i = 0; i < PLAIT_NGPU_TYPES; i++) {
        if (!site->gpu_type_given &&
            strcmp(plait_gpu_types[i].name, "h100") == 0)
            site->gpu_type = i;
        site->gpu_types[i] = plait_gpu_types[i];
        apply_figures(&document.entry[i], &site->gpu_types[i]);
    }
    return site;
}

struct plait_site *plait_site_create(const char *path, struct plait_error *err)
{
    struct plait_yaml *yaml = NULL;
    struct plait_site *site;

    if (path && !(yaml = plait_yaml_create(path, err)))
        return NULL;
    site = create_site(yaml, err);
    plait_yaml_destroy(yaml);
    return site;
}

struct plait_site *plait_site_parse(const char *name, const char *text,
                                    size_t size, struct plait_error *err)
{
    struct plait_yaml *yaml = plait_yaml_parse(name, text, size, err);
    struct plait_site *site = yaml ? create_site(yaml, err) : NULL;

    plait_yaml_destroy(yaml);
    return site;
}

void plait_site_destroy(struct plait_site *site)
{
    int saved = errno;

    if (!site)
        return;
    for (int i = 0; i < site->npolicies; i++) {
        free(site->policies[i].partition);
        free(site->policies[i].gpu);
    }
    free(site);
    errno = saved;
}

const char *plait_site_path(void)
{
    const char *named = getenv("PLAIT_SITE");

    if (named)
        return *named ? named : NULL;
    return access(PLAIT_SITE_FILE, F_OK) == 0 ? PLAIT_SITE_FILE : NULL;
}

int plait_site_gpu_type(const struct plait_site *site, const char *name,
                        struct plait_gpu_type *type, struct plait_error *err)
{
    int i = 0;

    if (!name)
        i = site->gpu_type;
    else
        while (i < PLAIT_NGPU_TYPES &&
               strcmp(site->gpu_types[i].name, name) != 0)
            i++;
    if (i == PLAIT_NGPU_TYPES) /* the error lists the names */
        return plait_gpu_type_find(name, type, err);
    *type = site->gpu_types[i];
    return 0;
}
