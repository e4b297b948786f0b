"""Skills: folders with a SKILL.md, from registries or by hand (Agent Skills)."""
