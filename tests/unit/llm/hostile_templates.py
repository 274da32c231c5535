"""Chat templates that would take gigabytes or minutes, by what they misuse."""

from __future__ import annotations

X = "{% set x = 'a' * 4000000 %}"  # as long as a string may be
WORDS = "{% set x = 'a ' * 2000000 %}"
LOOP = "{% for i in range(99999) %}"
NESTED = "".join(f"{{% for {c} in m %}}" for c in "bcdefgh") + "{% endfor %}" * 7

# Refused by what they ask for, in milliseconds.
QUICK = {
    "repeat": "{{ 'a' * 10**9 }}",
    "repeated list": "{{ [1] * 10**9 }}",
    "nested repeats": "{{ (('a' * 100000) ~ 'b') * 100000 }}",
    "power": "{{ 10**(10**8) }}",
    "center": "{{ 'a'|center(10**9) }}",
    "center method": "{{ 'a'.center(10**9) }}",
    "ljust": "{{ 'a'.ljust(10**10) }}",
    "zfill": "{{ 'a'.zfill(10**9) }}",
    "percent width": "{{ '%1000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (10**9, 1) }}",
    "percent precision": "{{ '%.999999999f' % 1 }}",
    "format filter": "{{ '%1000000000s'|format(1) }}",
    "format method": "{{ '{:1000000000}'.format(1) }}",
    "indent": "{{ 'a\nb'|indent(10**9) }}",
    "expandtabs": "{{ '\t'.expandtabs(10**9) }}",
    "range": "{{ range(10**9)|list }}",
    "range sum": "{{ range(10**9)|sum }}",
    "recursive macro": "{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "output": LOOP + "{{ 'a' * 9999 }}{% endfor %}",
    "doubling": "{% set n = namespace(x='ab') %}" + LOOP + "{% set n.x = n.x ~ n.x %}{% endfor %}",
    "join": X + "{{ (x[:9000]|list)|join(x) }}",
    "replace": X + "{{ x.replace('a', x) }}",
    "replace filter": X + "{{ x|replace('a', x) }}",
    "batch": "{{ [1]|batch(10**9, 'a')|list }}",
    "tojson indent": "{{ [1, 2]|tojson(indent=10**9) }}",
    "translate": X + "{{ x.translate({97: x}) }}",
    "encode": X + "{% set ns = namespace(l=[]) %}" + LOOP + "{% set ns.l = ns.l + [x.encode('utf-32')] %}{% endfor %}",
    "deep nesting": "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "deep blocks": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "deep list": "{{ " + "[" * 90000 + "]" * 90000 + " }}",
}

# Stopped after a few seconds, or when the memory is full.
SLOW = {
    "loops over lists": "{% set m = range(300)|list %}" + NESTED,
    "loops over text": "{% set m = 'a' * 9999 %}" + NESTED,
    "recursive loop": "{% for i in [[1, 2]] recursive %}{{ loop([[1, 2], [1, 2]]) }}{% endfor %}",
    "branching macro": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}",
    "big integer": "{% set n = namespace(x=9) %}" + LOOP + "{% set n.x = n.x * n.x %}{% endfor %}{{ n.x }}",
    "big integer as text": "{% set n = namespace(x=9) %}{% for i in range(30) %}{% set n.x = n.x * n.x %}{% endfor %}"
    "{{ '%d' % n.x }}",
    "wordwrap": WORDS + "{% for i in range(99) %}{% set y = x|wordwrap(1) %}{% endfor %}",
    "sort": X + "{% set m = x|list %}{% for i in range(999) %}{% set y = m|sort %}{% endfor %}",
    "unique": X + "{% for i in range(999) %}{% set y = x|unique|list %}{% endfor %}",
    "groupby": X + "{% for i in range(999) %}{% set y = x|list|groupby('a') %}{% endfor %}",
    "reverse": X + "{% for i in range(9999) %}{% set y = x|reverse %}{% endfor %}",
    "title": X + "{% for i in range(9999) %}{% set y = x|title %}{% endfor %}",
    "urlize": WORDS + "{{ x|urlize }}",
    "find": X + "{% set y = 'a' * 2000000 ~ 'b' %}{% for i in range(999) %}{% set z = x.find(y) %}{% endfor %}",
    "count": X + "{% for i in range(99999) %}{% set z = x.count('ab') %}{% endfor %}",
    "comparison": X + "{% set y = 'a' * 4000000 %}{% for i in range(99999) %}{% set z = x == y %}{% endfor %}",
    "cycler": "{% set c = cycler(1, 2) %}{% set m = range(9999)|list %}"
    "{% for i in m %}{% for j in m %}{% set z = c.next() %}{% endfor %}{% endfor %}",
    "dictsort": "{% set m = range(9999)|list %}{% for i in m %}{% for j in m %}{% set z = {1: 2, 0: 3}|dictsort %}"
    "{% endfor %}{% endfor %}",
    "map": X + "{{ x|map('upper')|map('lower')|map('title')|join }}" * 9,
    "select": X + "{% for i in range(9999) %}{% set y = x|select('equalto', 'b')|list %}{% endfor %}",
    "lipsum": "{{ lipsum(n=10**6) }}",
    "slice": "{{ [1]|slice(10**9)|list }}",
    "long template": "{{ 1 }}" * 2_000_000,
    "pprint": X + "{{ [x, x, x, x, x, x, x, x, x, x]|pprint }}",
    "split": X + "{{ x.split('a')|list|length }}{{ (x|list, x|list, x|list)|string }}",
    "doubling list": "{% set n = namespace(x=[1]) %}" + LOOP + "{% set n.x = n.x + n.x %}{% endfor %}",
}
