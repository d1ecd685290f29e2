//! Forbids absolute paths of the machine on which a file was written.

/// The starts of absolute paths on users' machines and on build machines. Each string is split in two, so that this file itself does not contain such
/// a path.
const MACHINES: [(&str, &str); 6] =
    [("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/"), ("/Us", "ers/"), ("C:\\Us", "ers"), ("/tmp", "/")];

pub(super) fn check(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (at, line) in text.lines().enumerate() {
        for (start, end) in MACHINES {
            let machine = format!("{start}{end}");
            let Some(found) = line.find(&machine) else { continue };
            // `docs/home/x` and `~/work/x` are not absolute paths.
            let before = line[..found].chars().next_back();
            if !before.is_some_and(|c| c.is_alphanumeric() || "._-~$}*".contains(c)) {
                complaints.push(format!("{path}:{}: a path of one machine: {machine}", at + 1));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_path_fails() {
        let home = ["/ho", "me/me/flyball"].concat();
        assert_eq!(check("a.md", &format!("cd {home}\n")).len(), 1);
        assert_eq!(check("a.md", &format!("\"{home}\"\n")).len(), 1);
        assert_eq!(check("a.md", "cd docs/home/start\n").len(), 0);
        assert_eq!(check("a.md", "cd loom-tests\n").len(), 0);
    }
}
