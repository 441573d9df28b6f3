/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/job/site.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/nearest.h"
#include "topology/base/yaml.h"
#include "topology/job/site_figures.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* A type as the document has it; NAN: not given. */
struct entry {
    double figure[PLAIT_SITE_FIGURES];
    int per_node, domain; /* domain 0: as many as per_node */
    int units;            /* -1: not given */
    int like;             /* of the site's own: the type it starts from */
};

enum { TYPES_MOST = PLAIT_NGPU_TYPES + PLAIT_SITE_TYPES };
enum { HOOK_MOST = 1024 }; /* characters of a path */
/* of an entry: the figures, per_node, domain, units; and like */
enum { NKEYS = PLAIT_SITE_FIGURES + 3, NOWN_KEYS = NKEYS + 1 };

static const char *const too_large[] = {"refuse", "warn", "off"};

struct document {
    enum plait_too_large too_large;
    struct plait_yaml_list policies;
    struct plait_site_export export;
    struct plait_site_network network;
    struct plait_site_preflight preflight;
    bool rank_warning;
    bool job_comment;
    int gpu_type;
    int ntypes;
    const char *name[TYPES_MOST]; /* of the types; the site's own are in yaml */
    struct entry entry[TYPES_MOST];
};

static void document_init(struct document *document)
{
    document->rank_warning = true;
    document->job_comment = true;
    for (int i = 0; i < PLAIT_NAXES; i++)
        document->network.traffic_class[i] = -1;
    document->gpu_type = -1;
    document->ntypes = PLAIT_NGPU_TYPES;
    for (int i = 0; i < PLAIT_NGPU_TYPES; i++)
        document->name[i] = plait_gpu_types[i].name;
    for (int i = 0; i < TYPES_MOST; i++) {
        document->entry[i].like = i < PLAIT_NGPU_TYPES ? i : -1;
        document->entry[i].units = -1;
        for (int k = 0; k < PLAIT_SITE_FIGURES; k++)
            document->entry[i].figure[k] = NAN;
    }
}

static void apply_counts(const struct entry *entry, struct plait_gpu_type *type)
{
    if (entry->per_node)
        type->per_node = type->domain = entry->per_node;
    if (entry->domain)
        type->domain = entry->domain;
    if (entry->units >= 0)
        type->units = entry->units;
}

/* The index of the type called `name`, in upper or lower case; -1: none. */
static int find_type(const char *const *names, int n, const char *name)
{
    int i = 0;

    while (i < n && strcasecmp(names[i], name) != 0)
        i++;
    return i < n ? i : -1;
}

/* A key of gpu_types that the table lacks: a type that says what it is like, or
 * a misspelt name. */
static int add_type(struct plait_yaml *yaml, const yaml_node_t *key,
                    const yaml_node_t *value, struct document *document,
                    struct plait_error *err)
{
    const char *name = plait_yaml_text(key);
    int known = find_type(document->name, document->ntypes, name), nearest;
    size_t most = sizeof(plait_gpu_types[0].name) - 1;

    if (known >= 0) /* in another case */
        return plait_yaml_errorf(yaml, key, err,
                                 "gpu_types: the type is written %s",
                                 document->name[known]);
    nearest = plait_nearest(name, document->name, document->ntypes);
    if (!plait_yaml_get(yaml, value, "like"))
        return plait_yaml_errorf(
            yaml, key, err,
            "no GPU type \"%.40s\"%s%s%s; to define a type of "
            "your own, add like: TYPE",
            name, nearest < 0 ? "" : " (did you mean ",
            nearest < 0 ? "" : document->name[nearest],
            nearest < 0 ? "" : "?)");
    if (strlen(name) > most ||
        strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_.-") != strlen(name))
        return plait_yaml_errorf(yaml, key, err,
                                 "the type \"%.40s\" is not one to %d small "
                                 "letters, digits, '_', '-' and '.'",
                                 name, (int)most);
    if (document->ntypes == TYPES_MOST)
        return plait_yaml_errorf(yaml, key, err,
                                 "more than %d GPU types of the site's own",
                                 PLAIT_SITE_TYPES);
    document->name[document->ntypes++] = name;
    return 0;
}

static int add_types(struct plait_yaml *yaml, struct document *document,
                     struct plait_error *err)
{
    yaml_node_t *types =
        plait_yaml_get(yaml, plait_yaml_root(yaml), "gpu_types");

    if (!types || types->type != YAML_MAPPING_NODE)
        return 0;
    for (int i = 0; i < plait_yaml_count(types); i++) {
        yaml_node_t *key, *value = plait_yaml_pair(yaml, types, i, &key);
        const char *name = plait_yaml_text(key);
        int k = 0;

        while (name && k < document->ntypes &&
               strcmp(document->name[k], name) != 0)
            k++;
        if (k == document->ntypes &&
            add_type(yaml, key, value, document, err) < 0)
            return -1;
    }
    return 0;
}

static const struct {
    const char *name;
    size_t offset; /* of an int in struct entry */
    int least, most;
} counts[] = {{"per_node", offsetof(struct entry, per_node), 1, 1024},
              {"domain", offsetof(struct entry, domain), 1, 4096},
              {"units", offsetof(struct entry, units), 0, 4096}};

static void list_figures(const char *const *names,
                         struct plait_yaml_field fields[NOWN_KEYS])
{
    for (int k = 0; k < PLAIT_SITE_FIGURES; k++)
        fields[k] =
            (struct plait_yaml_field){.name = plait_site_figures[k].name,
                                      .type = PLAIT_YAML_REAL,
                                      .offset = offsetof(struct entry, figure) +
                                                (size_t)k * sizeof(double),
                                      .min = plait_site_figures[k].least,
                                      .max = plait_site_figures[k].most};
    for (int k = 0; k < COUNT(counts); k++)
        fields[PLAIT_SITE_FIGURES + k] =
            (struct plait_yaml_field){.name = counts[k].name,
                                      .type = PLAIT_YAML_INT,
                                      .offset = counts[k].offset,
                                      .min = counts[k].least,
                                      .max = counts[k].most};
    fields[NKEYS] =
        (struct plait_yaml_field){.name = "like",
                                  .type = PLAIT_YAML_CHOICE,
                                  .offset = offsetof(struct entry, like),
                                  .choices = names,
                                  .count = PLAIT_NGPU_TYPES};
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
    {.name = "user",
     .type = PLAIT_YAML_TEXT,
     .offset = offsetof(struct plait_policy, user)},
    {.name = "account",
     .type = PLAIT_YAML_TEXT,
     .offset = offsetof(struct plait_policy, account)},
    {.name = "qos",
     .type = PLAIT_YAML_TEXT,
     .offset = offsetof(struct plait_policy, qos)},
    {.name = "gpu",
     .type = PLAIT_YAML_TEXT,
     .offset = offsetof(struct plait_policy, gpu)},
    {.name = "enabled",
     .type = PLAIT_YAML_BOOL,
     .offset = offsetof(struct plait_policy, enabled)},
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

#define SWITCH(key, record, member)               \
    {                                             \
        .name = key, .type = PLAIT_YAML_BOOL,     \
        .offset = offsetof(struct record, member) \
    }

static const struct plait_yaml_field exports[] = {
    SWITCH("nccl_ib_hca", plait_site_export, nccl_ib_hca),
    SWITCH("ucx_net_devices", plait_site_export, ucx_net_devices),
    SWITCH("fi_cxi_device_name", plait_site_export, fi_cxi_device_name),
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
    SWITCH("sharp", plait_site_network, sharp),
    {.name = "traffic_class",
     .type = PLAIT_YAML_MAP,
     .offset = offsetof(struct plait_site_network, traffic_class),
     .fields = classes,
     .count = COUNT(classes)},
};

static const struct plait_yaml_field preflights[] = {
    {.name = "link",
     .type = PLAIT_YAML_REAL,
     .offset = offsetof(struct plait_site_preflight, link),
     .max = 1},
    {.name = "hook",
     .type = PLAIT_YAML_TEXT,
     .offset = offsetof(struct plait_site_preflight, hook)},
};

/* The document's sections. */
static int read_document(struct plait_yaml *yaml, struct document *document,
                         struct plait_error *err)
{
    struct plait_yaml_field entry[NOWN_KEYS], types[TYPES_MOST];
    const struct plait_yaml_field sections[] = {
        {.name = "gpu_type",
         .type = PLAIT_YAML_CHOICE,
         .offset = offsetof(struct document, gpu_type),
         .choices = document->name,
         .count = document->ntypes},
        {.name = "gpu_types",
         .type = PLAIT_YAML_MAP,
         .offset = offsetof(struct document, entry),
         .fields = types,
         .count = document->ntypes},
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
        {.name = "preflight",
         .type = PLAIT_YAML_MAP,
         .offset = offsetof(struct document, preflight),
         .fields = preflights,
         .count = COUNT(preflights)},
        SWITCH("rank_warning", document, rank_warning),
        SWITCH("job_comment", document, job_comment),
    };

    list_figures(document->name, entry);
    for (int i = 0; i < document->ntypes; i++)
        types[i] = (struct plait_yaml_field){
            .name = document->name[i],
            .type = PLAIT_YAML_MAP,
            .offset = (size_t)i * sizeof(struct entry),
            .fields = entry,
            .count = i < PLAIT_NGPU_TYPES ? NKEYS : NOWN_KEYS};
    return plait_yaml_read(yaml, plait_yaml_root(yaml), "", sections,
                           COUNT(sections), document, err);
}

static void set_type(const struct document *document, int i,
                     struct plait_gpu_type *type)
{
    *type = plait_gpu_types[document->entry[i].like];
    snprintf(type->name, sizeof(type->name), "%s", document->name[i]);
    apply_counts(&document->entry[i], type);
    plait_site_apply_figures(document->entry[i].figure, type);
}

static int check_types(struct plait_yaml *yaml, const struct document *document,
                       struct plait_error *err)
{
    const yaml_node_t *types =
        plait_yaml_get(yaml, plait_yaml_root(yaml), "gpu_types");

    for (int i = 0; types && i < document->ntypes; i++) {
        const yaml_node_t *entry =
            plait_yaml_get(yaml, types, document->name[i]);

        if (entry && plait_site_check_figures(
                         yaml, entry, document->entry[i].figure,
                         &plait_gpu_types[document->entry[i].like], err) < 0)
            return -1;
    }
    return 0;
}

static int check_hook(const struct plait_site *site, struct plait_error *err)
{
    const char *hook = site->preflight.hook;

    if (!hook || (*hook == '/' && strlen(hook) < HOOK_MOST))
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "preflight.hook: \"%.100s\": must be the absolute "
                        "path of a program",
                        hook);
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
    for (int i = 0; i < PLAIT_POLICIES_MOST; i++)
        site->policies[i].enabled = true;
    if (yaml && (rc = add_types(yaml, &document, err)) == 0)
        rc = read_document(yaml, &document, err);
    if (yaml && rc == 0)
        rc = check_types(yaml, &document, err);
    site->npolicies = document.policies.n;
    site->preflight = document.preflight;
    if (rc == 0)
        rc = check_hook(site, err);
    if (rc < 0) {
        plait_site_destroy(site);
        return NULL;
    }
    site->export = document.export;
    site->network = document.network;
    site->rank_warning = document.rank_warning;
    site->job_comment = document.job_comment;
    site->too_large = document.too_large;
    site->gpu_type = document.gpu_type;
    site->gpu_type_given = document.gpu_type >= 0;
    site->ngpu_types = document.ntypes;
    for (int i = 0; i < document.ntypes; i++) {
        set_type(&document, i, &site->gpu_types[i]);
        site->like[i] = document.entry[i].like;
    }
    if (!site->gpu_type_given)
        site->gpu_type = find_type(document.name, document.ntypes, "h100");
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

void plait_site_print_type(FILE *out, const struct plait_gpu_type *type,
                           const char *like)
{
    const struct plait_gpu_type *base = plait_gpu_types;

    while (strcmp(base->name, like ? like : type->name) != 0)
        base++;
    fprintf(out, "  %s:\n", type->name);
    if (like)
        fprintf(out, "    like: %s\n", like);
    if (type->per_node != base->per_node)
        fprintf(out, "    per_node: %d\n", type->per_node);
    if (type->domain != base->domain || type->per_node != base->per_node)
        fprintf(out, "    domain: %d\n", type->domain);
    if (type->units != base->units)
        fprintf(out, "    units: %d\n", type->units);
    plait_site_print_figures(out, type, base);
}
