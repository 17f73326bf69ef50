"""Rules from the name in a certificate to a principal; the examples are those of Kafka's documentation and tests."""

from __future__ import annotations

import pytest

from holdfast.daemon.login.principal_rules import NoRuleFits, PrincipalRules, RulesWrong

#: Kafka's documentation, "Customizing SSL User Name".
DOCUMENTED = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    "DEFAULT"
)
REST = "O=Unknown,L=Unknown,ST=Unknown,C=Unknown"


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        (DOCUMENTED, f"CN=serviceuser,OU=ServiceUsers,{REST}", "serviceuser"),
        (DOCUMENTED, f"CN=adminUser,OU=Admin,{REST}", "adminuser@admin"),
        (DOCUMENTED, "OU=JavaSoft,CN=Duke.J,C=US", "duke.j"),
        (DOCUMENTED, "OU=JavaSoft,C=US", "OU=JavaSoft,C=US"),
        ("", "CN=duke", "CN=duke"),
        ("DEFAULT", "CN=duke", "CN=duke"),
        # As in Kafka's SslPrincipalMapperTest.
        ("RULE:^CN=([^,]+)(,.*|$)/$1/", "CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        (r"RULE:^CN=([^,]+)(,.*|$)/$1\/svc/", "CN=Duke,C=US", "Duke/svc"),
        (r"RULE:^CN=((\\,|\w| )+)(,.*|$)/$1/", r"CN=Duke\, J,C=US", r"Duke\, J"),
        ("RULE:^.*CN=(\\w+).*$/$1/U , DEFAULT", "C=US,CN=duke", "DUKE"),
        (r"RULE:^CN=(\w+)(,OU=(\w+))?$/$1-$3/", "CN=duke", "duke-"),
        (r"RULE:^CN=(\w+)$/$1 costs \$2 $/", "CN=duke", "duke costs $2 $"),
    ],
)
def test_the_first_rule_that_fits_the_whole_name_decides(rules: str, name: str, expected: str) -> None:
    assert PrincipalRules(rules).name_of(name) == expected


def test_a_name_that_no_rule_fits_is_nobody() -> None:
    with pytest.raises(NoRuleFits, match=r"'CN=duke,O=x'.*ssl\.principal\.mapping\.rules"):
        PrincipalRules("RULE:^CN=(\\w+)$/$1/").name_of("CN=duke,O=x")


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ("default", "'default' is not RULE:"),
        ("RULE:abc", "'RULE:abc' is not RULE:"),
        ("DEFAULT RULE:a/b/", "is not RULE:"),
        ("RULE:^(a/b/", "the pattern '\\^\\(a' is wrong"),
        ("RULE:^a$/b/X", "is not RULE:"),
        ("RULE:^(a)$/$2/", r"a group \$2 that"),
    ],
)
def test_rules_that_are_none_are_named(rules: str, why: str) -> None:
    with pytest.raises(RulesWrong, match=why):
        PrincipalRules(rules)
