-- Limits of customers, what they keep, and families: a document, its root, and everything that came out of it.

local FAMILIES = prefix .. 'families'
local families = {} -- by the seq of the root: how many have come out of it, and how many of all are left; false: none

-- Return the limits that hold for a customer, nil for one never seen: its own, else everybody's.
local function limits_of(customer)
  local own = customer and customer.terms and customer.terms.limits
  if not own then
    return rules.limits
  end
  local limits = {}
  for name, most in pairs(rules.limits) do
    limits[name] = own[name] or most
  end
  return limits
end

-- Return a reply that refuses `adding` more for a customer or a document, if that is over a limit.
local function over_limit(limits, limit, name, used, adding)
  local most = limits[limit]
  if most and used + adding > most then
    return {'over', limit, name, used, adding, most}
  end
end

-- Return the seq of the first document of a document's family.
local function root_of(document)
  return fixed(document).root or document.seq
end

-- Return a family, or false.
local function family_of(root)
  if families[root] == nil then
    local record = call('HGET', FAMILIES, root)
    families[root] = false
    if record then
      local descendants, kept = decode(record)
      families[root] = {descendants = descendants, kept = kept}
    end
  end
  return families[root]
end

local function write_family(root)
  write('HSET', FAMILIES, root, pack(families[root].descendants, families[root].kept))
end

-- Count documents that come out of one.
local function join_family(root, count)
  local family = family_of(root) or {descendants = 0, kept = 1}
  family.descendants, family.kept = family.descendants + count, family.kept + count
  families[root] = family
  write_family(root)
end

-- Count a document no longer that is gone.
local function leave_family(root)
  local family = family_of(root)
  if not family then
    return
  end
  family.kept = family.kept - 1
  if family.kept > 0 then
    write_family(root)
  else
    remove('HDEL', FAMILIES, root)
    families[root] = false
  end
end

-- Count what a document takes, or takes more.
local function keep(document, documents_added, bytes_added)
  local customer = customer_of(document.owner)
  customer.documents, customer.bytes = customer.documents + documents_added, customer.bytes + bytes_added
  changed_customers[document.owner] = true
end
