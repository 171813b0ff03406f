/* A stack machine that runs the opcodes in one pass. Memo and stack have values, which name
 * containers by index, so a shared container stays shared. Each opcode pushes at most three values
 * and makes at most one container, so the file's size bounds the memory. */
#include "lab/import/pickle.h"

#include "lab/import/opcodes.h"

#include <inttypes.h>
#include <string.h>

struct machine {
    const uint8_t *bytes;
    size_t size;
    size_t at;     /* offset of the next byte */
    size_t opcode; /* offset of the current opcode */
    const char *name;
    struct ebb_pickle *pickle;
    ebb_pickle_items stack;
    ebb_pickle_items memo; /* by slot; EBB_PICKLE_MARK: not set */
    struct ebb_error *error;
};

static enum ebb_status fail(const struct machine *m, const char *why)
{
    return ebb__fail(m->error, EBB_ERR_FORMAT, m->name, "byte %zu: %s", m->opcode, why);
}

static enum ebb_status fail_memory(const struct machine *m)
{
    return ebb__fail(m->error, EBB_ERR_MEMORY, m->name, "no memory for its values");
}

/* The message for a refused opcode, which would import or call something or is unknown. */
static const char *forbidden(uint8_t opcode)
{
    switch (opcode) {
    case 'c':  /* GLOBAL */
    case 0x93: /* STACK_GLOBAL */
        return "it wants something imported: only plain data is read";
    case 'R':  /* REDUCE */
    case 'b':  /* BUILD */
    case 'i':  /* INST */
    case 'o':  /* OBJ */
    case 0x81: /* NEWOBJ */
    case 0x92: /* NEWOBJ_EX */
        return "it wants an object made: only plain data is read";
    case 'P':  /* PERSID */
    case 'Q':  /* BINPERSID */
    case 0x82: /* EXT1 */
    case 0x83: /* EXT2 */
    case 0x84: /* EXT4 */
    case 0x97: /* NEXT_BUFFER */
    case 0x98: /* READONLY_BUFFER */
        return "it refers to something outside: only plain data is read";
    default:
        return "its opcode is not known";
    }
}

/* Reads the next `count` bytes as a little-endian number. False: the pickle is too short. */
static bool take(struct machine *m, size_t count, uint64_t *value)
{
    if (count > m->size - m->at)
        return false;
    *value = 0;
    for (size_t i = 0; i < count; i++)
        *value |= (uint64_t)m->bytes[m->at + i] << (8 * i);
    m->at += count;
    return true;
}

static enum ebb_status push(struct machine *m, struct ebb_pickle_value value)
{
    return ebb_vec_push(&m->stack, value) ? EBB_OK : fail_memory(m);
}

static enum ebb_status push_number(struct machine *m, enum ebb_pickle_kind kind, uint64_t number)
{
    return push(m, (struct ebb_pickle_value){.kind = kind, .as.number = number});
}

static enum ebb_status push_int(struct machine *m, size_t bytes)
{
    uint64_t value;
    if (!take(m, bytes, &value))
        return fail(m, "ends within a number");
    return push_number(m, EBB_PICKLE_INT, value);
}

/* Pushes an integer in two's complement of any length. */
static enum ebb_status push_long(struct machine *m, size_t length_bytes)
{
    uint64_t length, value = 0;
    if (!take(m, length_bytes, &length) || length > m->size - m->at)
        return fail(m, "ends within a number");
    const uint8_t *digits = m->bytes + m->at;
    m->at += (size_t)length;
    while (length > 1 && digits[length - 1] == 0 && !(digits[length - 2] & 0x80))
        length--;
    if (length && digits[length - 1] & 0x80)
        return push_number(m, EBB_PICKLE_ODD_INT, 1);
    if (length > 9 || (length == 9 && digits[8]))
        return push_number(m, EBB_PICKLE_ODD_INT, 0);
    for (size_t i = 0; i < length && i < 8; i++)
        value |= (uint64_t)digits[i] << (8 * i);
    return push_number(m, EBB_PICKLE_INT, value);
}

static enum ebb_status push_text(struct machine *m, size_t length_bytes)
{
    uint64_t length;
    if (!take(m, length_bytes, &length) || length > m->size - m->at)
        return fail(m, "ends within a string");
    struct ebb_text text = {(const char *)m->bytes + m->at, (size_t)length};
    m->at += (size_t)length;
    return push(m, (struct ebb_pickle_value){.kind = EBB_PICKLE_STRING, .as.text = text});
}

static enum ebb_status push_float(struct machine *m)
{
    if (m->size - m->at < 8)
        return fail(m, "ends within a number");
    uint64_t bits = 0;
    for (size_t i = 0; i < 8; i++) /* floats are big-endian; all other numbers are not */
        bits = bits << 8 | m->bytes[m->at + i];
    m->at += 8;
    double real;
    memcpy(&real, &bits, sizeof real);
    return push(m, (struct ebb_pickle_value){.kind = EBB_PICKLE_FLOAT, .as.real = real});
}

/* Replaces the topmost `count` values by a new container with them. */
static enum ebb_status push_container(struct machine *m, enum ebb_pickle_kind kind, size_t count)
{
    ebb_pickle_items items = {0};
    for (size_t i = m->stack.count - count; i < m->stack.count; i++)
        if (m->stack.items[i].kind == EBB_PICKLE_MARK)
            return fail(m, "takes a mark for a value");
    if (count && !ebb_vec_reserve(&items, count))
        return fail_memory(m);
    if (count)
        memcpy(items.items, m->stack.items + m->stack.count - count, count * sizeof *items.items);
    items.count = count;
    m->stack.count -= count;
    if (!ebb_vec_push(&m->pickle->containers, items)) {
        ebb_vec_free(&items);
        return fail_memory(m);
    }
    return push_number(m, kind, m->pickle->containers.count - 1);
}

/* Number of values above the topmost mark; SIZE_MAX: there is no mark. */
static size_t above_mark(const struct machine *m)
{
    size_t count = 0;
    while (count < m->stack.count &&
           m->stack.items[m->stack.count - 1 - count].kind != EBB_PICKLE_MARK)
        count++;
    return count < m->stack.count ? count : SIZE_MAX;
}

/* Replaces the topmost mark, and all values above it, by a container with these values. */
static enum ebb_status push_marked(struct machine *m, enum ebb_pickle_kind kind)
{
    size_t count = above_mark(m);
    if (count == SIZE_MAX)
        return fail(m, "there is no mark");
    if (kind == EBB_PICKLE_DICT && count % 2)
        return fail(m, "a key lacks its value");
    enum ebb_status status = push_container(m, kind, count);
    if (status)
        return status;
    struct ebb_pickle_value made = m->stack.items[--m->stack.count];
    m->stack.items[m->stack.count - 1] = made;
    return EBB_OK;
}

/* Adds the topmost `count` values to the container below them. If `marked`, a mark is between. */
static enum ebb_status extend(struct machine *m, enum ebb_pickle_kind kind, size_t count,
                              bool marked)
{
    size_t taken = count + marked;
    if (count == SIZE_MAX || m->stack.count < taken + 1)
        return fail(m, marked ? "there is no mark" : "the stack is too short");
    if (kind == EBB_PICKLE_DICT && count % 2)
        return fail(m, "a key lacks its value");
    struct ebb_pickle_value *below = &m->stack.items[m->stack.count - taken - 1];
    if (below->kind != kind)
        return fail(m, "adds to what is no container of that kind");
    ebb_pickle_items *items = &m->pickle->containers.items[below->as.number];
    if (!ebb_vec_reserve(items, items->count + count))
        return fail_memory(m);
    for (size_t i = m->stack.count - count; i < m->stack.count; i++) {
        if (m->stack.items[i].kind == EBB_PICKLE_MARK)
            return fail(m, "takes a mark for a value");
        items->items[items->count++] = m->stack.items[i];
    }
    m->stack.count -= taken;
    return EBB_OK;
}

static enum ebb_status put(struct machine *m, uint64_t slot)
{
    const struct ebb_pickle_value none = {.kind = EBB_PICKLE_MARK};
    if (!m->stack.count || m->stack.items[m->stack.count - 1].kind == EBB_PICKLE_MARK)
        return fail(m, "there is nothing to remember");
    /* Picklers number slots from 0 and write at least one byte for each. */
    if (slot > m->size)
        return fail(m, "remembers under an impossible number");
    while (m->memo.count <= slot)
        if (!ebb_vec_push(&m->memo, none))
            return fail_memory(m);
    m->memo.items[slot] = m->stack.items[m->stack.count - 1];
    return EBB_OK;
}

static enum ebb_status put_number(struct machine *m, size_t bytes)
{
    uint64_t slot;
    return take(m, bytes, &slot) ? put(m, slot) : fail(m, "ends within a number");
}

static enum ebb_status get(struct machine *m, size_t bytes)
{
    uint64_t slot;
    if (!take(m, bytes, &slot))
        return fail(m, "ends within a number");
    if (slot >= m->memo.count || m->memo.items[slot].kind == EBB_PICKLE_MARK)
        return fail(m, "refers to what was not remembered");
    return push(m, m->memo.items[slot]);
}

static enum ebb_status pop(struct machine *m, size_t count)
{
    if (count > m->stack.count)
        return fail(m, "the stack is too short");
    m->stack.count -= count;
    return EBB_OK;
}

static enum ebb_status duplicate(struct machine *m)
{
    if (!m->stack.count || m->stack.items[m->stack.count - 1].kind == EBB_PICKLE_MARK)
        return fail(m, "the stack is too short");
    return push(m, m->stack.items[m->stack.count - 1]);
}

static enum ebb_status push_tuple(struct machine *m, size_t count)
{
    return count > m->stack.count ? fail(m, "the stack is too short")
                                  : push_container(m, EBB_PICKLE_LIST, count);
}

/* Skips a protocol number or a frame's length. They are not used, but must be present. */
static enum ebb_status skip(struct machine *m, size_t bytes)
{
    uint64_t value;
    return take(m, bytes, &value) ? EBB_OK : fail(m, "ends within a number");
}

/* Pushes a signed integer of four bytes. */
static enum ebb_status push_signed(struct machine *m)
{
    uint64_t value;
    if (!take(m, 4, &value))
        return fail(m, "ends within a number");
    return value >> 31 ? push_number(m, EBB_PICKLE_ODD_INT, 1)
                       : push_number(m, EBB_PICKLE_INT, value);
}

/* Runs an opcode that makes a container or adds values to one. */
static enum ebb_status step_container(struct machine *m, uint8_t opcode)
{
    switch (opcode) {
    case OP_EMPTY_DICT:
        return push_container(m, EBB_PICKLE_DICT, 0);
    case OP_EMPTY_LIST:
    case OP_EMPTY_TUPLE:
    case OP_EMPTY_SET:
        return push_container(m, EBB_PICKLE_LIST, 0);
    case OP_TUPLE1:
        return push_tuple(m, 1);
    case OP_TUPLE2:
        return push_tuple(m, 2);
    case OP_TUPLE3:
        return push_tuple(m, 3);
    case OP_TUPLE:
    case OP_LIST:
    case OP_FROZENSET:
        return push_marked(m, EBB_PICKLE_LIST);
    case OP_DICT:
        return push_marked(m, EBB_PICKLE_DICT);
    case OP_APPEND:
        return extend(m, EBB_PICKLE_LIST, 1, false);
    case OP_APPENDS:
    case OP_ADDITEMS:
        return extend(m, EBB_PICKLE_LIST, above_mark(m), true);
    case OP_SETITEM:
        return extend(m, EBB_PICKLE_DICT, 2, false);
    case OP_SETITEMS:
        return extend(m, EBB_PICKLE_DICT, above_mark(m), true);
    default:
        return fail(m, forbidden(opcode));
    }
}

static enum ebb_status step(struct machine *m, uint8_t opcode)
{
    switch (opcode) {
    case OP_PROTO:
        return skip(m, 1);
    case OP_FRAME:
        return skip(m, 8);
    case OP_MARK:
        return push_number(m, EBB_PICKLE_MARK, 0);
    case OP_POP:
        return pop(m, 1);
    case OP_POP_MARK:
        return above_mark(m) == SIZE_MAX ? fail(m, "there is no mark") : pop(m, above_mark(m) + 1);
    case OP_DUP:
        return duplicate(m);
    case OP_NONE:
        return push_number(m, EBB_PICKLE_NONE, 0);
    case OP_NEWTRUE:
        return push_number(m, EBB_PICKLE_BOOL, 1);
    case OP_NEWFALSE:
        return push_number(m, EBB_PICKLE_BOOL, 0);
    case OP_BININT1:
        return push_int(m, 1);
    case OP_BININT2:
        return push_int(m, 2);
    case OP_BININT:
        return push_signed(m);
    case OP_LONG1:
        return push_long(m, 1);
    case OP_LONG4:
        return push_long(m, 4);
    case OP_BINFLOAT:
        return push_float(m);
    case OP_SHORT_BINUNICODE:
    case OP_SHORT_BINBYTES:
    case OP_SHORT_BINSTRING:
        return push_text(m, 1);
    case OP_BINUNICODE:
    case OP_BINBYTES:
    case OP_BINSTRING:
        return push_text(m, 4);
    case OP_BINUNICODE8:
    case OP_BINBYTES8:
    case OP_BYTEARRAY8:
        return push_text(m, 8);
    case OP_BINGET:
        return get(m, 1);
    case OP_LONG_BINGET:
        return get(m, 4);
    case OP_BINPUT:
        return put_number(m, 1);
    case OP_LONG_BINPUT:
        return put_number(m, 4);
    case OP_MEMOIZE:
        return put(m, m->memo.count);
    default:
        return step_container(m, opcode);
    }
}

static enum ebb_status run(struct machine *m)
{
    while (m->at < m->size) {
        uint8_t opcode = m->bytes[m->at];
        m->opcode = m->at++;
        if (opcode == OP_STOP) {
            if (m->stack.count != 1 || m->stack.items[0].kind == EBB_PICKLE_MARK)
                return fail(m, "ends with other than one value");
            m->pickle->root = m->stack.items[0];
            return EBB_OK;
        }
        enum ebb_status status = step(m, opcode);
        if (status)
            return status;
    }
    m->opcode = m->size;
    return fail(m, "ends before its end mark");
}

enum ebb_status ebb__pickle_read(const uint8_t *bytes, size_t size, const char *name,
                                 struct ebb_pickle *pickle, struct ebb_error *error)
{
    memset(pickle, 0, sizeof *pickle);
    struct machine m = {
        .bytes = bytes, .size = size, .name = name, .pickle = pickle, .error = error};
    enum ebb_status status = run(&m);
    ebb_vec_free(&m.stack);
    ebb_vec_free(&m.memo);
    if (status)
        ebb__pickle_fini(pickle);
    return status;
}

void ebb__pickle_fini(struct ebb_pickle *pickle)
{
    for (size_t i = 0; i < pickle->containers.count; i++)
        ebb_vec_free(&pickle->containers.items[i]);
    ebb_vec_free(&pickle->containers);
    memset(pickle, 0, sizeof *pickle);
}

const struct ebb_pickle_value *ebb__pickle_items(const struct ebb_pickle *pickle,
                                                 const struct ebb_pickle_value *value,
                                                 size_t *count)
{
    *count = 0;
    if (!value || (value->kind != EBB_PICKLE_LIST && value->kind != EBB_PICKLE_DICT))
        return NULL;
    const ebb_pickle_items *items = &pickle->containers.items[value->as.number];
    *count = items->count;
    return items->items;
}

const struct ebb_pickle_value *ebb__pickle_member(const struct ebb_pickle *pickle,
                                                  const struct ebb_pickle_value *value,
                                                  const char *key)
{
    size_t count;
    const struct ebb_pickle_value *items = ebb__pickle_items(pickle, value, &count);
    if (!items || value->kind != EBB_PICKLE_DICT)
        return NULL;
    const struct ebb_pickle_value *found = NULL; /* if a key occurs twice, its last value */
    for (size_t i = 0; i + 1 < count && i < 2 * EBB_PICKLE_MEMBERS; i += 2)
        if (items[i].kind == EBB_PICKLE_STRING && ebb__text_is(items[i].as.text, key))
            found = &items[i + 1];
    return found;
}
