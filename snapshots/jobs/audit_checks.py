"""What must hold in the two topics, as SQL: each query returns what violates it.

Every query returns topic, partition, offset (of the record to look at, or -1) and detail.

    log         the increments topic, `columns.LOG`
    orphans     increments whose predecessors are gone: their owner did not know yet that the topic was re-created or
                cut. It then began the chain anew after them, with everything that they say
    increments  of the log, the readable increments, without orphans
    snaps       the snapshots topic, `columns.SNAPSHOTS`
    bounds      partition, log_start, snaps_start: first offsets when the audit began
    pointers    every committed pointer once, with `seen_at`, the first increment that has it, and
                `newest`, whether it is the first one of its partition's last increment; without those into a
                snapshots topic that was deleted, by the topic ids in the increments
    pointed     the same pointers (`said_…`) beside the manifests found there
    refs        chunk references of pointed manifests, with their place in the list
    changes     changes records, each with the increment (`until`) and the claim (`claimed`) after it
    raw_changes the values of changes records: partition, offset, value
    joined      partition, offset of an increment; records, entries and crc of the changes before it

Parameters: :log and :snaps, the topics' names; :app, the app id. What was trimmed is not a finding,
unless the newest snapshot needs it. Offsets are only compared, because markers leave gaps.
"""

from __future__ import annotations

VIEWS = {
    "orphans": """
        WITH lives AS (
            SELECT *, count_if(begins_anew) OVER so_far AS life, count_if(kind = 1) OVER so_far AS claims
            FROM log WHERE state = 'ok'
            WINDOW so_far AS (PARTITION BY partition ORDER BY offset)),
        ends AS (SELECT partition, life - 1 AS life, owner_epoch AS end, log_id AS new_id
            FROM lives WHERE begun_by_owner),
        ended AS (
            SELECT l.*, e.new_id, bool_or(l.previous_offset >= l.offset) OVER
                (PARTITION BY l.partition, l.life ORDER BY l.offset) AS cut
            FROM lives l JOIN ends e ON e.partition = l.partition AND e.life = l.life
                AND l.offset < e.end
            WHERE l.kind = 3)
        SELECT partition, offset FROM ended WHERE cut OR (claims = 0 AND log_id <> new_id)""",
    "increments": """
        SELECT * FROM log LEFT ANTI JOIN orphans USING (partition, offset)
        WHERE kind = 3 AND state = 'ok'""",
    "pointers": """
        WITH every AS (
            SELECT partition, offset, snaps_id, posexplode(pointers) AS (place, p) FROM increments),
        last AS (SELECT partition, max(offset) AS offset, max_by(snaps_id, offset) AS snaps_id
            FROM increments GROUP BY partition)
        SELECT e.partition, e.p.*, min(e.offset) AS seen_at,
            bool_or(l.offset = e.offset AND e.place = 0) AS newest
        FROM every e JOIN last l ON l.partition = e.partition
        GROUP BY ALL HAVING bool_or(e.snaps_id = l.snaps_id)""",
    "pointed": """
        SELECT p.partition, p.manifest_offset AS offset, p.seen_at, p.newest, p.first_chunk_offset,
            p.snapshot_id AS said_id, p.batch AS said_batch, p.digest AS said_digest,
            p.increment_offset AS said_increment, m.snapshot_id, m.batch, m.digest,
            m.increment_offset, m.entries_digest, m.entry_count, m.digest_count, m.chunks,
            m.offset IS NOT NULL AS present, b.snaps_start, b.log_start
        FROM pointers p JOIN bounds b ON b.partition = p.partition
        LEFT JOIN snaps m ON m.partition = p.partition AND m.offset = p.manifest_offset
            AND m.kind = 5 AND m.state = 'ok'""",
    "refs": """
        SELECT DISTINCT partition, offset AS manifest_offset, snapshot_id, snaps_start, place,
            c.offset, c.sequence, c.size, c.crc
        FROM pointed LATERAL VIEW posexplode(chunks) AS place, c""",
    "changes": """
        SELECT * FROM (
            SELECT partition, offset, kind, state, part, entries, batch,
                min(IF(kind = 3, offset, NULL)) OVER following AS until,
                min(IF(kind = 1, offset, NULL)) OVER following AS claimed
            FROM log WHERE state <> 'foreign'
            WINDOW following AS (PARTITION BY partition ORDER BY offset
                ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING))
        WHERE kind = 2""",
    "joined": """
        SELECT c.partition, c.until AS offset, count(*) AS records, sum(c.entries) AS entries,
            crc32(aggregate(
                transform(array_sort(collect_list(struct(r.offset, r.value))), x -> x.value),
                X'', (whole, value) -> concat(whole, value))) AS crc
        FROM changes c JOIN raw_changes r ON r.partition = c.partition AND r.offset = c.offset
        GROUP BY c.partition, c.until""",
}
KEPT = {"orphans", "pointed", "joined"}
"""Views that are computed once: several checks use them, and `joined` reads Kafka again."""

CHECKS = {
    "envelope": """
        SELECT topic, partition, offset, 'magic, length or crc32 is not what was written' AS detail
        FROM (SELECT :log AS topic, partition, offset, state FROM log
            UNION ALL SELECT :snaps, partition, offset, state FROM snaps)
        WHERE state = 'damaged'""",
    "format": """
        SELECT topic, partition, offset,
            coalesce(problem, 'a format version that this build does not know') AS detail
        FROM (SELECT :log AS topic, partition, offset, state, problem FROM log
            UNION ALL SELECT :snaps, partition, offset, state, problem FROM snaps)
        WHERE state IN ('format', 'body')""",
    "genesis": """
        SELECT :log AS topic, b.partition, coalesce(min(i.offset), -1) AS offset,
            coalesce(concat('the log is whole, but its first increment is batch ',
                min_by(i.batch, i.offset)), 'no increment, not even the genesis') AS detail
        FROM bounds b LEFT JOIN increments i ON i.partition = b.partition
        GROUP BY b.partition, b.log_start
        HAVING count(i.offset) = 0 OR (b.log_start = 0 AND min_by(i.batch, i.offset) <> 0
            AND NOT min_by(i.begins_anew, i.offset))""",
    "chain": """
        SELECT :log AS topic, partition, offset, concat('batch ', batch, ' names offset ',
            previous_offset, ' as its predecessor, but batch ', before, ' at ', before_offset,
            ' precedes it') AS detail
        FROM (SELECT *, lag(batch) OVER w AS before, lag(offset) OVER w AS before_offset
            FROM increments WINDOW w AS (PARTITION BY partition ORDER BY offset))
        WHERE NOT begins_anew AND (batch <> before + 1 OR previous_offset <> before_offset)""",
    "ranges": """
        WITH known AS (
            SELECT *, IF(begins_anew, NULL,
                coalesce(lag(positions) OVER w, IF(batch = 0, genesis, NULL))) AS before
            FROM increments WINDOW w AS (PARTITION BY partition ORDER BY offset)),
        each AS (
            SELECT partition, offset, batch, r.*, coalesce(lag(r.end) OVER
                (PARTITION BY partition, offset, r.topic ORDER BY place), before[r.topic]) AS expected
            FROM known LATERAL VIEW posexplode(ranges) AS place, r),
        ended AS (
            SELECT partition, offset, batch, input, position, greatest(before[input],
                array_max(transform(filter(ranges, r -> r.topic = input), r -> r.end))) AS expected
            FROM known LATERAL VIEW explode(positions) AS input, position
            WHERE before IS NOT NULL)
        SELECT :log AS topic, partition, offset, concat('batch ', batch, ' covers ', topic,
            ' from ', start, ' to ', end, ', but the range before it ended at ', expected) AS detail
        FROM each WHERE start <> expected OR end < start
        UNION ALL
        SELECT :log, partition, offset, concat('batch ', batch, ' ends ', input, ' at position ',
            position, ', but its ranges end at ', expected)
        FROM ended WHERE position <> expected
        UNION ALL
        SELECT :log, partition, offset, concat('batch ', batch, ' applied ', record_count,
            ' records, but its ranges hold ', held)
        FROM (SELECT *, aggregate(ranges, 0L, (sum, r) -> sum + r.count) AS held FROM increments)
        WHERE record_count > held OR (skips = 0 AND record_count <> held)""",
    "epochs": """
        WITH owned AS (
            SELECT l.*, b.log_start,
                max(IF(kind = 3, owner_epoch, NULL)) OVER before AS highest,
                max(IF(kind = 1, l.offset, NULL)) OVER before AS claimed
            FROM log l JOIN bounds b ON b.partition = l.partition
            LEFT ANTI JOIN orphans o ON o.partition = l.partition AND o.offset = l.offset
            WHERE l.state = 'ok'
            WINDOW before AS (PARTITION BY l.partition ORDER BY l.offset
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
        SELECT :log AS topic, partition, offset, CASE
            WHEN owner_epoch < highest
            THEN concat('owner epoch ', owner_epoch, ' after epoch ', highest)
            WHEN claimed > owner_epoch
            THEN concat('written under owner epoch ', owner_epoch, ' after the claim at ', claimed)
            ELSE concat('owner epoch ', owner_epoch, ' is not the offset of a claim before it')
            END AS detail
        FROM owned WHERE kind = 3 AND (owner_epoch < highest OR claimed > owner_epoch
            OR (owner_epoch >= log_start AND claimed IS DISTINCT FROM owner_epoch))""",
    "origin": """
        SELECT :log AS topic, partition, offset, concat('written by app ', app_id) AS detail
        FROM log WHERE app_id <> :app""",
    "changes": """
        SELECT :log AS topic, partition, offset, 'changes without an increment after them' AS detail
        FROM changes WHERE until IS NULL OR claimed < until
        UNION ALL
        SELECT :log, i.partition, i.offset, concat('batch ', i.batch, ' names ',
            i.changes.records, ' changes records, ', i.changes.entries, ' entries, crc32 ',
            hex(i.changes.crc), ', but before it are ', coalesce(j.records, 0), ', ',
            coalesce(j.entries, 0), ', ', hex(coalesce(j.crc, 0)))
        FROM increments i JOIN bounds b ON b.partition = i.partition
        LEFT JOIN joined j ON j.partition = i.partition AND j.offset = i.offset
        WHERE i.previous_offset + 1 >= b.log_start AND i.changes IS NOT NULL AND (
            i.changes.records <> coalesce(j.records, 0) OR i.changes.crc <> coalesce(j.crc, 0)
            OR i.changes.entries <> coalesce(j.entries, 0))
        UNION ALL
        SELECT :log, c.partition, c.offset, concat('changes of batch ', c.batch, ' part ', c.part,
            ' before the increment of batch ', i.batch, ', which names ',
            coalesce(concat(i.changes.records, ' records'), 'none'))
        FROM changes c JOIN increments i ON i.partition = c.partition AND i.offset = c.until
        WHERE c.batch <> i.batch OR i.changes IS NULL OR c.part >= i.changes.records""",
    "pointers": """
        SELECT :log AS topic, partition, seen_at AS offset, concat('points to snapshot ', said_id,
            ' at offset ', offset, ' of ', :snaps, CASE
                WHEN NOT present THEN ', where there is no manifest'
                WHEN snapshot_id <> said_id THEN concat(', but the manifest there is of ', snapshot_id)
                ELSE ', but its manifest has another batch, increment, digest or first chunk'
                END) AS detail
        FROM pointed WHERE offset >= snaps_start AND (NOT present OR snapshot_id <> said_id
            OR batch <> said_batch OR increment_offset <> said_increment
            OR digest IS DISTINCT FROM said_digest OR first_chunk_offset <>
                coalesce(array_min(transform(chunks, c -> c.offset)), offset))
        UNION ALL
        SELECT :log, p.partition, p.seen_at, concat('points to a snapshot of batch ', p.said_batch,
            ' at increment ', p.said_increment, ', ', coalesce(concat('which is batch ', i.batch,
                ' with digest ', coalesce(i.digest, 'none')), 'where there is no increment'))
        FROM pointed p LEFT JOIN increments i
            ON i.partition = p.partition AND i.offset = p.said_increment
        WHERE p.said_increment >= p.log_start AND (i.offset IS NULL OR i.batch <> p.said_batch
            OR i.digest IS DISTINCT FROM p.said_digest) AND NOT EXISTS (
                SELECT 1 FROM increments d WHERE d.partition = p.partition AND d.begins_anew
                    AND d.owner_epoch = p.said_increment)""",
    "retention": """
        SELECT :log AS topic, partition, seen_at AS offset, concat('the newest snapshot, ', said_id,
            ', needs ', :snaps, ' from offset ', first_chunk_offset, ' (starts at ', snaps_start,
            ') and ', :log, ' after ', said_increment, ' (starts at ', log_start, ')') AS detail
        FROM pointed WHERE newest
            AND (first_chunk_offset < snaps_start OR said_increment + 1 < log_start)""",
    "manifests": """
        SELECT :snaps AS topic, partition, offset, concat('snapshot ', snapshot_id, ' lists ',
            entry_count, ' entries, entries digest ', entries_digest, ', digest ',
            coalesce(digest, 'none')) AS detail
        FROM pointed WHERE present AND (entry_count <> digest_count OR digest <> entries_digest)
        UNION ALL
        SELECT :snaps, partition, manifest_offset, concat('snapshot ', snapshot_id,
            ' lists chunk ', sequence, ' in place ', place)
        FROM refs WHERE sequence <> place""",
    "chunks": """
        SELECT :snaps AS topic, r.partition, r.offset, concat('chunk ', r.sequence,
            ' of snapshot ', r.snapshot_id, ' (manifest at ', r.manifest_offset, ') ', CASE
                WHEN s.offset IS NULL THEN 'is missing'
                WHEN s.kind IS DISTINCT FROM 4 THEN 'is another kind of record'
                ELSE concat('has ', s.size, ' bytes, crc32 ', hex(s.crc), ', but its manifest says ',
                    r.size, ', ', hex(r.crc)) END) AS detail
        FROM refs r LEFT JOIN snaps s ON s.partition = r.partition AND s.offset = r.offset
        WHERE r.offset >= r.snaps_start AND (s.offset IS NULL OR s.kind IS DISTINCT FROM 4
            OR s.size <> r.size OR s.crc <> r.crc)""",
}

NEWEST = """
    SELECT p.partition, p.offset, p.snapshot_id, p.entries_digest, p.chunks
    FROM pointed p WHERE p.newest AND p.present AND NOT EXISTS (
        SELECT 1 FROM refs r
        LEFT JOIN snaps s ON s.partition = r.partition AND s.offset = r.offset
        WHERE r.partition = p.partition AND r.manifest_offset = p.offset AND (s.offset IS NULL
            OR s.state <> 'ok' OR s.kind <> 4 OR s.size <> r.size OR s.crc <> r.crc))"""
"""The newest snapshot of each partition, if every chunk of it is what its manifest says."""

DECISIONS = """
    SELECT partition, offset, coalesce(decision['finding'], '') AS finding,
        coalesce(decision['decided'], '') AS decided, coalesce(decision['reason'], '') AS reason,
        coalesce(decision['by'], '') AS by
    FROM increments WHERE decision IS NOT NULL ORDER BY partition, offset"""
"""What operators accepted and owners decided: not a finding, but readers of a clean audit must know of it."""

DIGESTS = """
    SELECT partition, count(*) AS entries,
        sum(a & 4294967295) AS a_low, sum(shiftrightunsigned(a, 32)) AS a_high,
        sum(b & 4294967295) AS b_low, sum(shiftrightunsigned(b, 32)) AS b_high
    FROM (SELECT partition, xxhash64(k, v) AS a, xxhash64(v, k) AS b FROM entries)
    GROUP BY partition"""
"""Digest of the view `entries`, in halves, because ANSI mode refuses sums beyond 2^63 (up to 2^31 entries per
partition)."""

COUNTS = {
    "claims": "SELECT count(*) FROM log WHERE kind = 1 AND state = 'ok'",
    "increments": "SELECT count(*) FROM increments",
    "changes_records": "SELECT count(*) FROM changes",
    "pointers": "SELECT count(*) FROM pointers",
    "manifests": "SELECT count(*) FROM snaps WHERE kind = 5 AND state = 'ok'",
    "chunks": "SELECT count(*) FROM snaps WHERE kind = 4 AND state = 'ok'",
    "input_records": "SELECT coalesce(sum(record_count), 0) FROM increments",
}
NOTES = {
    "foreign_records": """SELECT (SELECT count(*) FROM log WHERE state = 'foreign')
        + (SELECT count(*) FROM snaps WHERE state = 'foreign')""",
    "orphaned_increments": "SELECT count(*) FROM orphans",
    "trimmed_pointers": """SELECT count(*) FROM pointed
        WHERE first_chunk_offset < snaps_start OR said_increment + 1 < log_start""",
    "unpointed_manifests": """SELECT count(*) FROM snaps s
        WHERE kind = 5 AND state = 'ok' AND NOT EXISTS (SELECT 1 FROM pointers p
            WHERE p.partition = s.partition AND p.manifest_offset = s.offset)""",
    "unlisted_chunks": """SELECT count(*) FROM snaps s
        WHERE kind = 4 AND state = 'ok' AND NOT EXISTS (SELECT 1 FROM refs r
            WHERE r.partition = s.partition AND r.offset = s.offset)""",
}
